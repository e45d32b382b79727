//! Commands of `tenure` that run for long, and what the programs that they start leave behind.

use std::fs::File;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tenure_core::store::Evict;
use tenure_core::{GroupName, InstanceId, Reason};
use testkit::wait_until;

use crate::tenure::{Tenure, with_store};

/// However slow the machine is, it does not take that long.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A process that is killed when the test is over.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stderr: String,
}

impl Tenure {
    /// Starts `tenure`; what it says is in the file `NAME.err`, what it prints in `NAME.out`.
    pub fn start(&self, name: &str, words: &[&str]) -> Running {
        self.start_this(name, self.command(words))
    }

    pub fn start_this(&self, name: &str, mut command: Command) -> Running {
        let file = |kind: &str| File::create(self.path(&format!("{name}.{kind}"))).unwrap();
        // A terminal of whoever runs the tests stays out of it.
        let child = command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err"));
        Running { child: child.spawn().unwrap(), stderr: format!("{name}.err") }
    }

    /// What is in a file; nothing if there is none.
    pub fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Waits until a file has so many whole lines.
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

    /// Process ids that were written to a file, one per line.
    #[track_caller]
    pub fn pids(&self, name: &str, count: usize) -> Vec<Pid> {
        let lines = self.lines(name, count);
        lines.iter().map(|line| Pid::from_raw(line.parse().unwrap()).unwrap()).collect()
    }

    /// An operator takes the session of an instance away.
    pub fn evict(&self, group: &str, instance: &str) {
        let (group, why) = (GroupName::new(group).unwrap(), Reason::new("test").unwrap());
        let instance = InstanceId::new(instance).unwrap();
        with_store(&self.sqlite("tenure.db"), async |store| {
            store.evict(&group, &instance, Evict::Now, &why).await.unwrap();
        });
    }

    /// Waits until a process has said something.
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

    /// Fails instead of waiting for ever.
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

    /// The guard that it has started.
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

/// The processes whose parent this is.
pub fn children(pid: Pid) -> Vec<Pid> {
    let pid = pid.as_raw_pid();
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let text = text.unwrap_or_default();
    text.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap()).collect()
}

pub fn all_gone(pids: &[Pid]) -> bool {
    pids.iter().all(|pid| test_kill_process(*pid).is_err())
}

/// A shell that never ends by itself: it waits at a pipe that it has open itself.
pub const STAY: &str = "test -p hold || mkfifo hold; exec 9<>hold; while :; do read line <&9; done";

/// A command, a grandchild, and a grandchild in a session of its own whose parent is gone; all of
/// them begin with `first`. Their process ids are in the file `pids`.
pub fn family(first: &str) -> String {
    let stay = format!("{first}; echo $$ >> pids; while :; do read line <&9; done");
    format!(
        "{first}; mkfifo hold; exec 9<>hold; (setsid sh -c '{stay}' &); sh -c '{stay}' &
         echo $$ >> pids; while :; do read line <&9; done"
    )
}
