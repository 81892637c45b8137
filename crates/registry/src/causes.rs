//! The list of problems of an object. A body can have hundreds of thousands of problems, each with a long message, so the
//! list is truncated at [`Causes::MAX`].

use watchet_api::StatusCause;

/// The problems of an object, at most [`Causes::MAX`] of them.
#[derive(Debug, Default)]
pub struct Causes(Vec<StatusCause>);

impl From<Vec<StatusCause>> for Causes {
    fn from(causes: Vec<StatusCause>) -> Self {
        Self(causes)
    }
}

impl Causes {
    /// The number of causes before the list is truncated.
    pub const MAX: usize = 100;

    /// Adds a cause. Instead of the first cause after [`Self::MAX`] it adds one which reports that there are more.
    pub fn push(&mut self, cause: StatusCause) {
        match self.0.len() {
            len if len < Self::MAX => self.0.push(cause),
            Self::MAX => self.0.push(StatusCause::too_many()),
            _ => {}
        }
    }

    /// Returns true if there is no cause.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the list is truncated: looking for more causes has no effect.
    pub fn is_full(&self) -> bool {
        self.0.len() > Self::MAX
    }

    /// Returns all causes; none for a valid object.
    pub fn into_vec(self) -> Vec<StatusCause> {
        self.0
    }
}
