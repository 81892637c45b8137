//! A program in a terminal: `script` of the base system opens a pseudo terminal, and this shows its screen. It interprets the
//! sequences that a program which draws whole lines sends.

use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, timeout_at};

use crate::harness::PATIENCE;

const ROWS: usize = 20;
const COLUMNS: usize = 150;

/// A program with its screen.
pub(super) struct Terminal {
    child: Child,
    keys: ChildStdin,
    out: ChildStdout,
    /// Received bytes that are not a complete sequence.
    rest: Vec<u8>,
    rows: Vec<Vec<char>>,
    cursor: (usize, usize),
    /// True while the program uses the alternate screen.
    pub is_alternate: bool,
}

impl Terminal {
    /// Starts `watchet` with `args` in a terminal.
    pub(super) fn start(kubeconfig: &Path, args: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_watchet");
        let kubeconfig = kubeconfig.display();
        let line = format!(
            "stty rows {ROWS} cols {COLUMNS}; {program} {args} --kubeconfig {kubeconfig}; echo exit code $?"
        );
        let mut command = Command::new("script");
        command.args(["-q", "-f", "-c", &line, "/dev/null"]);
        command.env("TERM", "xterm").env("SHELL", "/bin/sh");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().expect("script is part of the base system");
        Self {
            keys: child.stdin.take().expect("stdin is a pipe"),
            out: child.stdout.take().expect("stdout is a pipe"),
            child,
            rest: Vec::new(),
            rows: vec![vec![' '; COLUMNS]; ROWS],
            cursor: (0, 0),
            is_alternate: false,
        }
    }

    /// Types `keys`.
    pub(super) async fn press(&mut self, keys: &str) {
        self.keys
            .write_all(keys.as_bytes())
            .await
            .expect("the terminal is open");
        self.keys.flush().await.expect("the terminal is open");
    }

    /// Waits until `condition` is true of the lines on the screen, and returns them.
    pub(super) async fn until(
        &mut self,
        what: &str,
        condition: impl Fn(&[String]) -> bool,
    ) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let lines = self.lines();
            if condition(&lines) {
                return lines;
            }
            let mut bytes = [0; 4096];
            let read = timeout_at(deadline, self.out.read(&mut bytes)).await;
            let count = match read {
                Ok(count) => count.expect("the terminal can be read"),
                Err(_) => panic!("{what}: {:#?}", self.lines()),
            };
            assert!(
                count > 0,
                "{what}: the program has ended: {:#?}",
                self.lines()
            );
            self.rest.extend_from_slice(&bytes[..count]);
            self.interpret();
        }
    }

    /// Waits until the program and the terminal have ended.
    pub(super) async fn ended(mut self) {
        drop(self.keys);
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        ended.expect("it ends").expect("its own child");
    }

    fn lines(&self) -> Vec<String> {
        let text = |row: &Vec<char>| row.iter().collect::<String>().trim_end().to_owned();
        self.rows.iter().map(text).collect()
    }

    fn interpret(&mut self) {
        let text = String::from_utf8_lossy(&self.rest).into_owned();
        let mut chars = text.chars().peekable();
        let mut rest = String::new();
        while let Some(next) = chars.next() {
            match next {
                '\u{1b}' => {
                    let mut sequence = String::new();
                    let end = chars.by_ref().find(|c| {
                        sequence.push(*c);
                        c.is_ascii_alphabetic() || matches!(*c, '7' | '8') && sequence.len() == 1
                    });
                    match end {
                        Some(_) => self.sequence(&sequence),
                        None => rest = format!("\u{1b}{sequence}"),
                    }
                }
                '\r' => self.cursor.1 = 0,
                '\n' => self.cursor.0 = (self.cursor.0 + 1).min(ROWS - 1),
                shown => {
                    let (row, column) = self.cursor;
                    if let Some(cell) = self.rows[row].get_mut(column) {
                        *cell = shown;
                    }
                    self.cursor.1 += 1;
                }
            }
        }
        self.rest = rest.into_bytes();
    }

    fn sequence(&mut self, sequence: &str) {
        let (row, column) = self.cursor;
        match sequence {
            "[?1049h" => self.is_alternate = true,
            "[?1049l" => self.is_alternate = false,
            "[K" => self.rows[row]
                .iter_mut()
                .skip(column)
                .for_each(|cell| *cell = ' '),
            "[J" => {
                self.rows[row]
                    .iter_mut()
                    .skip(column)
                    .for_each(|cell| *cell = ' ');
                self.rows[row + 1..]
                    .iter_mut()
                    .flatten()
                    .for_each(|cell| *cell = ' ');
            }
            _ => {
                let place = sequence
                    .strip_prefix('[')
                    .and_then(|rest| rest.strip_suffix('H'));
                if let Some((row, column)) = place.and_then(|place| place.split_once(';')) {
                    let index = |text: &str| text.parse::<usize>().expect("a number") - 1;
                    self.cursor = (index(row).min(ROWS - 1), index(column));
                }
            }
        }
    }
}
