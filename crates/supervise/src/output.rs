//! Output of commands that run beside each other: line by line on standard output, each with the
//! name of its duty, apart from the log.

use std::io::{self, PipeReader, PipeWriter, Write as _};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longest line; a longer one is split.
const MAX_LINE_BYTES: usize = 16 << 10;
/// Lines that wait to be written. When there are more, commands wait in their own writes.
const MAX_QUEUED_LINES: usize = 1024;
/// Bytes of a command's output that are kept for its result.
const MAX_EXCERPT_BYTES: usize = 500;
/// Limit on printing the last lines of a command, if nobody reads them.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputForm {
    /// Lines on standard output, with the name of the duty before each.
    Labelled,
    /// The streams of this process, unchanged.
    Inherited,
}

/// Prints lines on a thread of its own: a reader that is stuck delays nothing else.
#[derive(Clone, Debug)]
pub(crate) struct OutputPrinter(mpsc::Sender<Vec<u8>>);

impl OutputPrinter {
    pub(crate) fn start() -> io::Result<Self> {
        let (sender, mut lines) = mpsc::channel::<Vec<u8>>(MAX_QUEUED_LINES);
        let body = move || {
            while let Some(line) = lines.blocking_recv() {
                let mut out = io::stdout().lock();
                // Without a reader the output is lost, as it is for any program.
                let _ = out.write_all(&line);
                while let Ok(line) = lines.try_recv() {
                    let _ = out.write_all(&line);
                }
                let _ = out.flush();
            }
        };
        std::thread::Builder::new().name("tenure-output".to_owned()).spawn(body)?;
        Ok(Self(sender))
    }
}

/// One stream of a guard's commands.
#[derive(Debug)]
struct Stream {
    pipe: pipe::Receiver,
    state: Mutex<StreamState>,
    printer: OutputPrinter,
}

#[derive(Debug, Default)]
struct StreamState {
    label: String,
    /// The part of a line that was read.
    line: Vec<u8>,
    /// First bytes since the label was set.
    excerpt: Vec<u8>,
}

/// Both streams of the commands of one guard, which run one after the other.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    streams: [Arc<Stream>; 2],
    tasks: [JoinHandle<()>; 2],
}

/// The ends of the pipes for the guard.
pub(crate) struct OutputPipes {
    pub(crate) stdout: PipeWriter,
    pub(crate) stderr: PipeWriter,
}

impl CommandOutput {
    /// Creates the pipes, and starts to read them.
    pub(crate) fn start(printer: &OutputPrinter) -> io::Result<(Self, OutputPipes)> {
        let (stdout, stdout_end) = io::pipe()?;
        let (stderr, stderr_end) = io::pipe()?;
        let streams = [Stream::new(stdout, printer)?, Stream::new(stderr, printer)?];
        let read = |stream: &Arc<Stream>| {
            let stream = Arc::clone(stream);
            tokio::spawn(async move {
                // These reads clear the readiness when the pipe is empty.
                let read = |buffer: &mut [u8]| stream.pipe.try_read(buffer);
                while stream.pipe.readable().await.is_ok() && stream.read_all(read).await {}
            })
        };
        let tasks = streams.each_ref().map(read);
        Ok((Self { streams, tasks }, OutputPipes { stdout: stdout_end, stderr: stderr_end }))
    }

    /// Sets the name that the lines of the next command get.
    pub(crate) fn begin(&self, label: &str) {
        for stream in &self.streams {
            let label = label.to_owned();
            *stream.lock() = StreamState { label, ..StreamState::default() };
        }
    }

    /// Reads what an ended command has left in the pipes. Returns the beginning of its standard
    /// error, or of its standard output if that is empty.
    pub(crate) async fn end(&self) -> String {
        let [stdout, stderr] = &self.streams;
        let rest = async {
            stdout.flush().await;
            stderr.flush().await;
        };
        let _ = timeout(FLUSH_TIMEOUT, rest).await;
        let excerpt = |stream: &Stream| {
            let excerpt = std::mem::take(&mut stream.lock().excerpt);
            String::from_utf8_lossy(&excerpt).trim().to_owned()
        };
        let (printed, complained) = (excerpt(stdout), excerpt(stderr));
        if complained.is_empty() { printed } else { complained }
    }
}

impl Drop for CommandOutput {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Stream {
    fn new(pipe: PipeReader, printer: &OutputPrinter) -> io::Result<Arc<Self>> {
        let pipe = pipe::Receiver::from_owned_fd(OwnedFd::from(pipe))?;
        let (state, printer) = (Mutex::default(), printer.clone());
        Ok(Arc::new(Self { pipe, state, printer }))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, StreamState> {
        // Every change leaves it consistent, also after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads and prints until the pipe is empty. Returns whether more may come.
    async fn read_all(&self, read: impl Fn(&mut [u8]) -> io::Result<usize>) -> bool {
        let mut buffer = [0; 4096];
        loop {
            let read = match read(&mut buffer) {
                Ok(0) => return false,
                Ok(read) => read,
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            };
            let lines = self.lock().add(&buffer[..read]);
            for line in lines {
                // The printer ends with the process.
                let _ = self.printer.0.send(line).await;
            }
        }
    }

    async fn flush(&self) {
        // Whether or not the runtime has noticed that there is something to read.
        self.read_all(|buffer| Ok(rustix::io::read(&self.pipe, buffer)?)).await;
        let rest = {
            let mut state = self.lock();
            let line = std::mem::take(&mut state.line);
            (!line.is_empty()).then(|| state.labelled(&line))
        };
        if let Some(rest) = rest {
            let _ = self.printer.0.send(rest).await;
        }
    }
}

impl StreamState {
    /// Adds bytes; returns the lines that they complete.
    fn add(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let room = MAX_EXCERPT_BYTES.saturating_sub(self.excerpt.len());
        self.excerpt.extend(&bytes[..bytes.len().min(room)]);
        let mut lines = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend(piece);
            if self.line.ends_with(b"\n") || self.line.len() >= MAX_LINE_BYTES {
                let line = std::mem::take(&mut self.line);
                lines.push(self.labelled(&line));
            }
        }
        lines
    }

    /// Returns a line with its label and a line feed.
    fn labelled(&self, line: &[u8]) -> Vec<u8> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        [self.label.as_bytes(), b": ", line, b"\n"].concat()
    }
}

/// Appends the beginning of a command's output to a reason, as one line.
pub(crate) fn with_output(reason: &str, output: &str) -> String {
    let output = output.split_whitespace().collect::<Vec<_>>().join(" ");
    if output.is_empty() { reason.to_owned() } else { format!("{reason}: {output}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_labelled_and_the_beginning_is_kept() {
        let mut state = StreamState { label: "a/b".to_owned(), ..StreamState::default() };
        assert_eq!(state.add(b"on"), Vec::<Vec<u8>>::new());
        assert_eq!(state.add(b"e\n\ntw"), [b"a/b: one\n".to_vec(), b"a/b: \n".to_vec()]);
        assert_eq!(state.line, b"tw");
        let long = vec![b'x'; MAX_LINE_BYTES];
        assert_eq!(state.add(&long)[0].len(), "a/b: tw\n".len() + MAX_LINE_BYTES);
        assert_eq!((state.excerpt.len(), &state.excerpt[..8]), (500, &b"one\n\ntwx"[..]));
    }

    #[tokio::test]
    async fn the_rest_of_an_ended_command_is_read_before_the_next_begins() {
        let (sender, mut lines) = mpsc::channel(16);
        let (output, mut pipes) = CommandOutput::start(&OutputPrinter(sender)).unwrap();
        output.begin("one");
        pipes.stdout.write_all(b"printed\nno line feed").unwrap();
        assert_eq!(output.end().await, "printed\nno line feed");
        output.begin("two");
        pipes.stdout.write_all(b"x\n").unwrap();
        pipes.stderr.write_all(b"broken\n").unwrap();
        assert_eq!(output.end().await, "broken");
        let mut all = Vec::new();
        while let Ok(line) = lines.try_recv() {
            all.push(String::from_utf8(line).unwrap());
        }
        assert_eq!(all, ["one: printed\n", "one: no line feed\n", "two: x\n", "two: broken\n"]);
    }
}
