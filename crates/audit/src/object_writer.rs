//! `ObjectWriter`: writes the JSON of an object member by member. Almost all texts of events need no escapes, and a text
//! without escapes is copied in one piece; serde_json looks at each byte, which took half of the time of an event.

use serde::Serialize;

/// Appends an object to a buffer. [`Self::end`] completes it.
#[derive(Debug)]
pub(crate) struct ObjectWriter<'a> {
    buffer: &'a mut Vec<u8>,
    /// True if a comma must precede the next member.
    has_members: bool,
}

impl<'a> ObjectWriter<'a> {
    /// Begins an object.
    pub(crate) fn begin(buffer: &'a mut Vec<u8>) -> Self {
        buffer.push(b'{');
        Self::of_begun(buffer)
    }

    /// Continues an object whose beginning is in `buffer`, up to a comma.
    pub(crate) fn of_begun(buffer: &'a mut Vec<u8>) -> Self {
        Self {
            buffer,
            has_members: false,
        }
    }

    /// Appends a key, which needs no escapes; the caller appends the value to the returned buffer.
    pub(crate) fn key(&mut self, key: &str) -> &mut Vec<u8> {
        self.separate();
        self.buffer.push(b'"');
        self.buffer.extend_from_slice(key.as_bytes());
        self.buffer.extend_from_slice(b"\":");
        self.buffer
    }

    /// Appends a member with a text.
    pub(crate) fn text(&mut self, key: &str, text: &str) -> serde_json::Result<()> {
        write_text(self.key(key), text)
    }

    /// Appends a member with a text, unless it is empty.
    pub(crate) fn text_if_any(&mut self, key: &str, text: &str) -> serde_json::Result<()> {
        match text {
            "" => Ok(()),
            text => self.text(key, text),
        }
    }

    /// Appends a member with a list of texts.
    pub(crate) fn texts(&mut self, key: &str, texts: &[String]) -> serde_json::Result<()> {
        write_texts(self.key(key), texts)
    }

    /// Appends a member with any value.
    pub(crate) fn value<T: Serialize + ?Sized>(
        &mut self,
        key: &str,
        value: &T,
    ) -> serde_json::Result<()> {
        serde_json::to_writer(self.key(key), value)
    }

    /// Appends a member whose key may need escapes; the caller appends the value to the returned buffer.
    pub(crate) fn any_key(&mut self, key: &str) -> serde_json::Result<&mut Vec<u8>> {
        self.separate();
        write_text(self.buffer, key)?;
        self.buffer.push(b':');
        Ok(self.buffer)
    }

    /// Ends the object.
    pub(crate) fn end(self) {
        self.buffer.push(b'}');
    }

    fn separate(&mut self) {
        if self.has_members {
            self.buffer.push(b',');
        }
        self.has_members = true;
    }
}

/// Appends a text in quotes.
pub(crate) fn write_text(buffer: &mut Vec<u8>, text: &str) -> serde_json::Result<()> {
    // Without a branch in the loop, so that several bytes are compared by one instruction.
    let needs_escape = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    let is_escaped = |found: bool, byte: u8| found | needs_escape(byte);
    if text.bytes().fold(false, is_escaped) {
        return serde_json::to_writer(buffer, text);
    }
    buffer.reserve(text.len() + 2);
    buffer.push(b'"');
    buffer.extend_from_slice(text.as_bytes());
    buffer.push(b'"');
    Ok(())
}

/// Appends a list of texts.
pub(crate) fn write_texts(buffer: &mut Vec<u8>, texts: &[String]) -> serde_json::Result<()> {
    buffer.push(b'[');
    for (index, text) in texts.iter().enumerate() {
        if index > 0 {
            buffer.push(b',');
        }
        write_text(buffer, text)?;
    }
    buffer.push(b']');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_serde_json() {
        let long = "x".repeat(100);
        let mut texts = vec![
            String::new(),
            "pods".to_owned(),
            "naïve ☃ 𝄞\u{7f}".to_owned(),
        ];
        for special in ["\"", "\\", "\n", "\u{0}", "\u{1f}", "<&>"] {
            texts.push(format!("{special}{long}"));
            texts.push(format!("{long}{special}"));
            texts.push(format!("{long}{special}{long}"));
        }
        for text in &texts {
            let mut buffer = Vec::new();
            write_text(&mut buffer, text).unwrap();
            assert_eq!(buffer, serde_json::to_vec(text).unwrap(), "{text:?}");
        }
        let mut buffer = Vec::new();
        write_texts(&mut buffer, &texts).unwrap();
        assert_eq!(buffer, serde_json::to_vec(&texts).unwrap());
    }

    #[test]
    fn members_are_separated_by_commas() {
        let mut buffer = Vec::new();
        let mut object = ObjectWriter::begin(&mut buffer);
        object.text_if_any("absent", "").unwrap();
        object.text("a", "1").unwrap();
        write_text(object.any_key("b\"").unwrap(), "2").unwrap();
        object.value("c", &3).unwrap();
        object.texts("d", &["4".to_owned()]).unwrap();
        object.end();
        assert_eq!(
            String::from_utf8(buffer).unwrap(),
            r#"{"a":"1","b\"":"2","c":3,"d":["4"]}"#
        );
    }
}
