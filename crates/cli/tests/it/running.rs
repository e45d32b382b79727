//! Helpers for long-running commands, and for the files and processes of the programs they start.

use std::fs::File;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tenure_core::store::Evict;
use tenure_core::{GroupName, InstanceId, Reason};
use testkit::wait_until;

use crate::tenure::{Tenure, with_store};

/// Timeout of waiting, long enough for slow machines.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A process that is killed on drop.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stderr: String,
}

impl Tenure {
    /// Starts `tenure`, with standard output in `NAME.out` and standard error in `NAME.err`.
    pub fn start(&self, name: &str, words: &[&str]) -> Running {
        self.start_this(name, self.command(words))
    }

    pub fn start_this(&self, name: &str, mut command: Command) -> Running {
        let file = |kind: &str| File::create(self.path(&format!("{name}.{kind}"))).unwrap();
        // Without standard input, the terminal of the test run is not used.
        let child = command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err"));
        Running { child: child.spawn().unwrap(), stderr: format!("{name}.err") }
    }

    /// Returns the content of a file; empty if it does not exist.
    pub fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Waits until a file has `count` complete lines; returns all of them.
    #[track_caller]
    pub fn lines(&self, name: &str, count: usize) -> Vec<String> {
        let whole = || {
            let text = self.text(name);
            let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            lines.map(|line| line.trim_end().to_owned()).collect::<Vec<_>>()
        };
        let seen = wait_until(name, LIMIT, || whole().len() >= count);
        assert!(seen.is_ok(), "{name} has only {:?}", whole());
        whole()
    }

    /// Waits for process ids in a file, one per line.
    #[track_caller]
    pub fn pids(&self, name: &str, count: usize) -> Vec<Pid> {
        let lines = self.lines(name, count);
        lines.iter().map(|line| Pid::from_raw(line.parse().unwrap()).unwrap()).collect()
    }

    /// Evicts an instance at once.
    pub fn evict(&self, group: &str, instance: &str) {
        let (group, why) = (GroupName::new(group).unwrap(), Reason::new("test").unwrap());
        let instance = InstanceId::new(instance).unwrap();
        with_store(&self.sqlite("tenure.db"), async |store| {
            store.evict(&group, &instance, Evict::Now, &why).await.unwrap();
        });
    }

    /// Waits until a process has printed this to standard error.
    #[track_caller]
    pub fn said(&self, running: &Running, what: &str) {
        let said = || self.text(&running.stderr);
        let seen = wait_until(what, LIMIT, || said().contains(what));
        assert!(seen.is_ok(), "{what:?} is not in {:?}", said());
    }
}

impl Running {
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for the process to exit; fails after a timeout.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let ended = wait_until("it ends", LIMIT, || self.child.try_wait().unwrap().is_some());
        assert!(ended.is_ok(), "it does not end");
        self.child.wait().unwrap()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    #[track_caller]
    pub fn exits(mut self, code: i32) {
        assert_eq!(self.wait().code(), Some(code));
    }

    /// Returns the guard that the process has started.
    pub fn guard(&self) -> Pid {
        children(self.pid())[0]
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the children of a process.
pub fn children(pid: Pid) -> Vec<Pid> {
    let pid = pid.as_raw_pid();
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let text = text.unwrap_or_default();
    text.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap()).collect()
}

pub fn all_gone(pids: &[Pid]) -> bool {
    pids.iter().all(|pid| test_kill_process(*pid).is_err())
}

/// Shell script that never ends by itself: it waits on a pipe that it holds open.
pub const STAY: &str = "test -p hold || mkfifo hold; exec 9<>hold; while :; do read line <&9; done";

/// Returns a script with a child, and an orphan in a session of its own. All of them begin with
/// `first` and write their process ids to the file `pids`.
pub fn family(first: &str) -> String {
    let stay = format!("{first}; echo $$ >> pids; while :; do read line <&9; done");
    format!(
        "{first}; mkfifo hold; exec 9<>hold; (setsid sh -c '{stay}' &); sh -c '{stay}' &
         echo $$ >> pids; while :; do read line <&9; done"
    )
}
