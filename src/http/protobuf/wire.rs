//! The wire format of protobuf, read field by field. What the fields mean is told by the table.

use super::InvalidProtobuf;

/// One field's value as it is on the wire.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32,
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    /// The bytes of a string, of bytes or of a message.
    pub(super) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// What is left of a message.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    /// The next field; `None` at the end.
    pub(super) fn field(&mut self) -> Result<Option<(u32, Wire<'a>)>, InvalidProtobuf> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| InvalidProtobuf::Malformed)?;
        let wire = match key & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => {
                let mut bits = [0; 8];
                bits.copy_from_slice(self.take(8)?);
                Wire::Fixed64(u64::from_le_bytes(bits))
            }
            2 => {
                let length = self.varint()?;
                let length = usize::try_from(length).map_err(|_| InvalidProtobuf::Malformed)?;
                Wire::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Wire::Fixed32
            }
            _ => return Err(InvalidProtobuf::Malformed),
        };
        Ok(Some((number, wire)))
    }

    /// The first field of this number.
    pub(super) fn find(mut self, wanted: u32) -> Result<Option<Wire<'a>>, InvalidProtobuf> {
        while let Some((number, wire)) = self.field()? {
            if number == wanted {
                return Ok(Some(wire));
            }
        }
        Ok(None)
    }

    /// A number of seven bits a byte.
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
