//! A reader of the protobuf wire format, field by field.

use crate::error::InvalidProtobuf;

/// The value of a field, by wire type.
#[derive(Debug, Clone, Copy)]
pub(super) enum WireValue<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32,
    Bytes(&'a [u8]),
}

impl<'a> WireValue<'a> {
    /// Returns the bytes of a string, bytes or message field.
    pub(super) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// The unread rest of a message.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    /// Reads the next field; `None` at the end.
    pub(super) fn field(&mut self) -> Result<Option<(u32, WireValue<'a>)>, InvalidProtobuf> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| InvalidProtobuf::Malformed)?;
        let wire = match key & 7 {
            0 => WireValue::Varint(self.varint()?),
            1 => {
                let mut bits = [0; 8];
                bits.copy_from_slice(self.take(8)?);
                WireValue::Fixed64(u64::from_le_bytes(bits))
            }
            2 => {
                let length = self.varint()?;
                let length = usize::try_from(length).map_err(|_| InvalidProtobuf::Malformed)?;
                WireValue::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                WireValue::Fixed32
            }
            _ => return Err(InvalidProtobuf::Malformed),
        };
        Ok(Some((number, wire)))
    }

    /// Returns the first field with this number.
    pub(super) fn find(mut self, field: u32) -> Result<Option<WireValue<'a>>, InvalidProtobuf> {
        while let Some((number, wire)) = self.field()? {
            if number == field {
                return Ok(Some(wire));
            }
        }
        Ok(None)
    }

    /// Reads a varint.
    pub(super) fn varint(&mut self) -> Result<u64, InvalidProtobuf> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or(InvalidProtobuf::Malformed)?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(InvalidProtobuf::Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], InvalidProtobuf> {
        let (taken, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(InvalidProtobuf::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }
}
