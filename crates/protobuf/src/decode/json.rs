//! Writes an object as JSON while its message is read.

use watchet_api::write_json_string;

use super::members::{Content, Object, Root, Walk};
use super::scalars;
use crate::error::InvalidProtobuf;

/// Returns an object as JSON of at most about `json_bytes_max` bytes.
pub(super) fn write(
    root: &Root<'_, '_>,
    json_bytes_max: usize,
) -> Result<Vec<u8>, InvalidProtobuf> {
    let mut writer = Writer {
        walk: Walk::new(root.types),
        out: Vec::with_capacity(2 * root.object.bytes.len()),
        json_bytes_max,
    };
    for (name, text) in root.type_meta {
        writer.name(name);
        write_json_string(text, &mut writer.out);
    }
    writer.members(root.object)?;
    writer.out[0] = b'{';
    writer.out.push(b'}');
    Ok(writer.out)
}

struct Writer<'t, 'b> {
    walk: Walk<'t, 'b>,
    out: Vec<u8>,
    json_bytes_max: usize,
}

impl<'t, 'b> Writer<'t, 'b> {
    /// Appends the members of an object, each after a comma.
    fn members(&mut self, object: Object<'b>) -> Result<(), InvalidProtobuf> {
        let mut members = self.walk.members(object)?;
        while let Some((field, content)) = members.next(&mut self.walk)? {
            self.name(field.name());
            self.content(content)?;
            if self.out.len() > self.json_bytes_max {
                return Err(InvalidProtobuf::TooLarge {
                    json_bytes_max: self.json_bytes_max,
                });
            }
        }
        Ok(())
    }

    /// Appends the name of a member.
    fn name(&mut self, name: &str) {
        self.out.push(b',');
        write_json_string(name, &mut self.out);
        self.out.push(b':');
    }

    fn content(&mut self, content: Content<'t, 'b>) -> Result<(), InvalidProtobuf> {
        let begin = self.out.len();
        let (open, close) = match content {
            Content::Scalar(value) => return scalars::write(&value, &mut self.out),
            Content::Object(object) => {
                self.members(object)?;
                (b'{', b'}')
            }
            Content::List(mut items) => {
                while let Some(item) = items.next(&mut self.walk)? {
                    self.out.push(b',');
                    self.content(item)?;
                }
                (b'[', b']')
            }
            Content::Map(mut entries) => {
                while let Some((key, value)) = entries.next(&mut self.walk)? {
                    self.name(key);
                    self.content(value)?;
                }
                (b'{', b'}')
            }
        };
        match self.out.get_mut(begin) {
            // The comma before the first member or item.
            Some(first) => *first = open,
            None => self.out.push(open),
        }
        self.out.push(close);
        Ok(())
    }
}
