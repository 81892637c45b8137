//! Indents compact JSON chunk by chunk, in the layout of Go's `json.Indent`, as kube-apiserver does
//! for curl. It does not validate the JSON.

/// The state of indentation between two chunks of a JSON text.
#[derive(Debug, Default)]
pub(crate) struct Indenter {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Whether the last byte opened an object or array that may still turn out to be empty.
    opened: bool,
}

impl Indenter {
    /// Appends `chunk` indented to `out`.
    pub(crate) fn feed(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        for &byte in chunk {
            if self.in_string {
                out.push(byte);
                self.step_in_string(byte);
            } else if !byte.is_ascii_whitespace() {
                self.step(byte, out);
            }
        }
    }

    fn step_in_string(&mut self, byte: u8) {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = true,
            b'"' => self.in_string = false,
            _ => {}
        }
    }

    fn step(&mut self, byte: u8, out: &mut Vec<u8>) {
        let opened = std::mem::take(&mut self.opened);
        if matches!(byte, b'}' | b']') {
            self.depth = self.depth.saturating_sub(1);
            if !opened {
                self.new_line(out);
            }
            out.push(byte);
            return;
        }
        if opened {
            self.new_line(out);
        }
        out.push(byte);
        match byte {
            b'{' | b'[' => {
                self.depth += 1;
                self.opened = true;
            }
            b',' => self.new_line(out),
            b':' => out.push(b' '),
            b'"' => self.in_string = true,
            _ => {}
        }
    }

    fn new_line(&self, out: &mut Vec<u8>) {
        out.push(b'\n');
        out.resize(out.len() + 2 * self.depth, b' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_boundaries_do_not_change_the_output() {
        let compact = br#"{"a":"x\"{,}\\","b":[1,{"c":null}],"d":{},"e":[ ], "f":-1.5}"#;
        let expect = r#"{
  "a": "x\"{,}\\",
  "b": [
    1,
    {
      "c": null
    }
  ],
  "d": {},
  "e": [],
  "f": -1.5
}"#;
        for cut in 0..compact.len() {
            let mut indenter = Indenter::default();
            let mut out = Vec::new();
            indenter.feed(&compact[..cut], &mut out);
            indenter.feed(&compact[cut..], &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expect, "cut at {cut}");
        }
    }
}
