//! What the reader remembers of a record on the way: where the values stand that it has to look into itself.

/// A place of the rows whose value is looked into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tap {
    /// `_dspark` and members of it.
    Record,
    Status,
    Completed,
    Path,
    Body,
    RecordError,
    Schema,
    SchemaName,
    SchemaHash,
    ResponseFormat,
    StructuredOutputs,
    GuidedJson,
    /// Members of the answer: `error`, and `status` as the responses API has it.
    Error,
    State,
    /// Members of a choice and of its message.
    FinishReason,
    Text,
    Content,
    ToolCalls,
    /// Members of a call's function.
    FunctionName,
    Arguments,
}

const TAPS: usize = Tap::Arguments as usize + 1;
/// The taps of what stands outside of choices, and of what stands outside of functions.
const OUTSIDE_OF_CHOICES: u32 = (1 << Tap::FinishReason as u32) - 1;
const OUTSIDE_OF_FUNCTIONS: u32 = (1 << Tap::FunctionName as u32) - 1;

/// Where a value stands in its text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Span {
    pub(crate) fn of(self, text: &[u8]) -> &[u8] {
        &text[self.start..self.end]
    }
}

/// The values of the record at hand that are not null.
#[derive(Default)]
pub(crate) struct Taps {
    spans: [Span; TAPS],
    /// Bit `i` is set where the value of tap `i` is known.
    known: u32,
}

impl Taps {
    #[inline]
    pub(crate) fn get(&self, tap: Tap) -> Option<Span> {
        (self.known >> tap as u32 & 1 == 1).then(|| self.spans[tap as usize])
    }

    #[inline]
    pub(crate) fn set(&mut self, tap: Tap, span: Span) {
        self.spans[tap as usize] = span;
        self.known |= 1 << tap as u32;
    }

    pub(crate) fn forget_record(&mut self) {
        self.known = 0;
    }

    pub(crate) fn forget_choice(&mut self) {
        self.known &= OUTSIDE_OF_CHOICES;
    }

    pub(crate) fn forget_function(&mut self) {
        self.known &= OUTSIDE_OF_FUNCTIONS;
    }
}
