//! `tenure run` on a terminal, started by a shell with job control.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use testkit::wait_until;

use crate::running::LIMIT;
use crate::tenure::Tenure;

/// Prompt of the shell. Ctrl-C and Ctrl-Z discard what was typed ahead, so wait for the prompt
/// before typing.
const PROMPT: &str = "desk> ";

/// A shell on a terminal of its own.
struct Desk {
    shell: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
}

impl Desk {
    fn new(tenure: &Tenure) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let path = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let terminal = || OpenOptions::new().read(true).write(true).open(path).unwrap();
        let words = ["--ctty", "--wait", "bash", "--norc", "--noprofile", "-i"];
        let mut command = tenure.command_of("setsid", &words);
        command.env("TENURE", env!("CARGO_BIN_EXE_tenure")).env("PS1", PROMPT).env("TERM", "xterm");
        let command = command.stdin(Stdio::from(terminal())).stdout(Stdio::from(terminal()));
        let shell = command.stderr(Stdio::from(terminal())).spawn().unwrap();
        let keyboard = File::from(master);
        let mut paper = keyboard.try_clone().unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut some = [0; 1024];
            // Reading fails when no process has the terminal open any more.
            while let Ok(count @ 1..) = paper.read(&mut some) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&some[..count]));
            }
        });
        Self { shell, keyboard, screen }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for a text on the screen; earlier output is skipped.
    #[track_caller]
    fn sees(&self, text: &str) {
        let seen = wait_until(text, LIMIT, || self.screen.lock().unwrap().contains(text));
        let mut screen = self.screen.lock().unwrap();
        assert!(seen.is_ok(), "no {text:?} on {screen:?}");
        let after = screen.split_once(text).unwrap().1.to_owned();
        *screen = after;
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// The terminal echoes what is typed; the arithmetic distinguishes output from echo.
#[test]
fn the_command_has_the_terminal_while_it_runs() {
    has_the_terminal("");
}

#[test]
fn a_command_in_a_pid_namespace_has_the_terminal_too() {
    has_the_terminal("--isolate");
}

fn has_the_terminal(option: &str) {
    let tenure = Tenure::new();
    let mut desk = Desk::new(&tenure);
    let run = format!("\"$TENURE\" run --duty demo/one --ttl 60s {option} -- sh -c");
    let script = "echo ready-$((1+1)); while read line; do echo \"got-$line\"; done";

    // The command reads from the terminal.
    desk.press(&format!("{run} '{script}'\n"));
    desk.sees("ready-2");
    desk.press("one\n");
    desk.sees("got-one");

    // Ctrl-Z stops the command, and the shell gets the terminal.
    desk.press("\u{1a}");
    desk.sees("Stopped");
    desk.sees(PROMPT);
    desk.press("echo back-$((2+2))\n");
    desk.sees("back-4");

    // In the foreground again, the command continues.
    desk.press("fg\n");
    desk.press("two\n");
    desk.sees("got-two");

    // In the background the command has no terminal, and is stopped when it reads.
    desk.press("\u{1a}");
    desk.sees("Stopped");
    desk.sees(PROMPT);
    desk.press("bg\n");
    desk.press("echo back-$((3+3))\n");
    desk.sees("back-6");
    desk.press("fg\n");
    desk.press("three\n");
    desk.sees("got-three");

    // Ctrl-C ends the command, and the shell gets the exit code.
    desk.press("\u{3}");
    desk.sees(PROMPT);
    desk.press("echo code-$?-$((4+4))\n");
    desk.sees("code-130-8");

    // Ctrl-C reaches tenure itself while it waits.
    desk.press("mkfifo hold\n");
    desk.press(&format!("{run} 'echo ready-$((5+5)); exec 9<>hold; read line <&9' &\n"));
    desk.sees("ready-10");
    desk.press(&format!("{run} 'echo never'\n"));
    desk.sees("standby");
    desk.press("\u{3}");
    desk.sees(PROMPT);
    desk.press("echo code-$?-$((6+6))\n");
    desk.sees("code-130-12");
    // End the background command before the shell.
    desk.press("kill %1; wait; exit\n");
    desk.shell.wait().unwrap();
}

/// A script runs the command and continues afterwards. It has no job control, so no shell takes the
/// terminal back for it or restores its settings.
#[test]
fn a_script_has_the_terminal_again_as_it_was() {
    let tenure = Tenure::new();
    let run = "\"$TENURE\" run --duty demo/one --ttl 60s --";
    let script = format!(
        "{run} sh -c 'stty -echo; kill -KILL $$'; echo code-$?
         stty -a | grep -q -e ' -echo ' || echo echo-is-on
         {run} true; read line; echo \"got-$line\""
    );
    std::fs::write(tenure.path("script"), script).unwrap();
    let mut desk = Desk::new(&tenure);
    desk.sees(PROMPT);
    desk.press("sh script\n");
    desk.sees("code-137");
    desk.sees("echo-is-on");
    desk.press("one\n");
    desk.sees("got-one");
    desk.sees(PROMPT);
    desk.press("exit\n");
    desk.shell.wait().unwrap();
}

#[test]
fn no_signal_is_blocked_in_the_command() {
    let tenure = Tenure::new();
    let mut desk = Desk::new(&tenure);
    let run = "\"$TENURE\" run --duty demo/one --ttl 60s -- grep SigBlk /proc/self/status";
    desk.press(&format!("{run}\n"));
    desk.sees("SigBlk:\t0000000000000000");
    desk.press("exit\n");
    desk.shell.wait().unwrap();
}

/// On a terminal the progress of a drain is one line, and Ctrl-C leaves the drain in force.
#[test]
fn a_drain_shows_how_far_it_came_in_one_line() {
    let tenure = Tenure::new();
    crate::operate::prepare(&tenure.sqlite("tenure.db"));
    let mut desk = Desk::new(&tenure);
    desk.sees(PROMPT);
    desk.press("stty cols 200\n");
    desk.sees(PROMPT);
    desk.press("$TENURE drain poll host-1\n");
    desk.sees("\r\u{1b}[K0 of 2 duties handed over");
    desk.press("\u{3}");
    desk.sees(
        "\r\ninterrupted: the drain stays in force; 0 of 2 duties handed over; `tenure drain ",
    );
    desk.press("echo $((100 + $?))\n");
    desk.sees("230");
    desk.press("$TENURE drain poll host-1 --undo; exit\n");
    desk.sees("host-1 of poll gets duties again");
    desk.shell.wait().unwrap();
}

/// The store accepts connections, and answers nothing.
#[test]
fn a_slow_store_is_not_waited_for_in_silence() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let mut desk = Desk::new(&Tenure::new());
    desk.sees(PROMPT);
    desk.press("stty cols 200\n");
    desk.sees(PROMPT);
    for (words, activity) in
        [("cron ls", "reading the schedules ..."), ("drain g i", "changing the group ...")]
    {
        desk.press(&format!("$TENURE {words} --store {url}\n"));
        desk.sees(activity);
        desk.press("\u{3}");
        desk.sees(PROMPT);
    }
}

/// `tenure top` overwrites its output, and ends with exit code 0 on Ctrl-C.
#[test]
fn top_has_the_screen_until_ctrl_c() {
    let tenure = Tenure::new();
    tenure.run(&["migrate"]).ok();
    let mut desk = Desk::new(&tenure);
    desk.press("\"$TENURE\" top --every 100ms; echo ended-$?\n");
    for _ in 0..3 {
        desk.sees("\u{1b}[H");
        desk.sees("no groups yet");
        desk.sees("\u{1b}[J");
    }
    desk.press("\u{3}");
    desk.sees("ended-0");
}

/// Without a file, the command prints that it reads from the terminal. A long count shows its
/// progress in one line, which is removed at the end.
#[test]
fn a_plan_of_buckets_talks_to_people() {
    let tenure = Tenure::new();
    let mut desk = Desk::new(&tenure);
    desk.sees(PROMPT);
    desk.press("stty cols 200\n");
    desk.sees(PROMPT);
    desk.press("\"$TENURE\" bucket plan --key k --total 3\n");
    desk.sees("reading entities from the terminal");
    desk.press("alpha\n\u{4}");
    desk.sees("1 entity in 3 buckets of k");
    desk.sees(PROMPT);
    let many = "yes \"$(printf %0999d 0)\" | head -n 20000";
    desk.press(&format!("{many} | \"$TENURE\" bucket plan --key k --total 3\n"));
    desk.sees(" entities so far\r\u{1b}[K20000 entities in 3 buckets of k");
    desk.press("exit\n");
    desk.shell.wait().unwrap();
}

/// Heads of tables are bold and states have colours on a terminal, unless they are not wanted.
#[test]
fn a_terminal_has_colours() {
    let tenure = Tenure::new();
    let url = tenure.sqlite("tenure.db");
    crate::operate::prepare(&url);
    tenure.run(&["cordon", "poll", "host-2"]).ok();
    let mut desk = Desk::new(&tenure);
    desk.sees(PROMPT);
    desk.press("stty cols 200\n");
    desk.sees(PROMPT);
    desk.press("$TENURE top --once; echo end-$((1+1))\n");
    desk.sees("\u{1b}[1mgroup poll\u{1b}[0m");
    desk.sees("\u{1b}[1mSTATE\u{1b}[0m");
    desk.sees("\u{1b}[33mcordoned\u{1b}[0m");
    desk.sees("end-2");
    // Errors, also of clap, and its help.
    desk.press("$TENURE explain poll/typo\n");
    desk.sees("\u{1b}[1m\u{1b}[31mDT010\u{1b}[0m: ");
    desk.press("$TENURE ls --nope\n");
    desk.sees("\u{1b}[1m\u{1b}[31merror:\u{1b}[0m");
    desk.press("$TENURE ls --help\n");
    desk.sees("\u{1b}[1m\u{1b}[4mUsage:\u{1b}[0m");
    for plain in ["NO_COLOR=1 $TENURE top --once", "$TENURE --color never top --once"] {
        desk.press(&format!("{plain}; echo end-$((1+3))\n"));
        desk.sees("\nMEMBER  ");
        desk.sees("cordoned");
        desk.sees("end-4");
    }
    // An option overrides the variable; JSON never has colours.
    desk.press("NO_COLOR=1 $TENURE ls --color always\n");
    desk.sees("\u{1b}[1mDUTY\u{1b}[0m");
    desk.press("$TENURE ls --color always --json | cat -v; exit\n");
    desk.sees("{\r\n  \"groups\": [");
    desk.shell.wait().unwrap();
}

/// A command that waits for the store says so after a second, in a line that goes away.
#[test]
fn a_command_that_takes_long_shows_what_it_does() {
    let tenure = Tenure::new();
    crate::operate::prepare(&tenure.sqlite("tenure.db"));
    let lock = rusqlite::Connection::open(tenure.path("tenure.db")).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut desk = Desk::new(&tenure);
    desk.sees(PROMPT);
    desk.press("stty cols 200\n");
    desk.sees(PROMPT);
    desk.press("$TENURE pause poll/a; exit\n");
    desk.sees("\r\u{1b}[Kchanging the group ...");
    lock.execute_batch("COMMIT").unwrap();
    desk.sees("\r\u{1b}[K");
    desk.sees("paused");
    desk.shell.wait().unwrap();
}
