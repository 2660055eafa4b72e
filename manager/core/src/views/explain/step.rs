use crate::facts::reason::Why;
use std::iter::Peekable;

/// One thing that keeps a workload, and what removes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) words: String,
    pub(crate) help: String,
}

/// All that keeps it, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    pub(crate) list: Vec<Step>,
    /// Changes of which each does for all of them.
    pub(crate) alone: Vec<String>,
}

impl Steps {
    pub(crate) fn one(words: String, help: String) -> Self {
        Self { list: vec![Step { words, help }], alone: Vec::new() }
    }

    pub(crate) fn of(why: &Why) -> Self {
        Self::one(why.words(), why.would_help())
    }

    pub(crate) fn extend(&mut self, more: Self) {
        self.list.extend(more.list);
    }

    /// What keeps it, and what would help.
    pub(crate) fn in_words(self) -> (String, String) {
        let words: Vec<&str> = self.list.iter().map(|step| step.words.as_str()).collect();
        let summary = words.join("; and then: ");
        let helps: Vec<&str> =
            self.list.iter().map(|step| step.help.as_str()).filter(|help| !help.is_empty()).collect();
        let help = match (helps.as_slice(), self.alone.is_empty()) {
            ([], _) => String::new(),
            ([one], _) => (*one).to_owned(),
            (many, true) => {
                format!("no single change is known to start it; first: {}", many.join("; then: "))
            }
            (many, false) => format!("first: {}", many.join("; then: ")),
        };
        let alone = self.alone.join("; or ");
        let help = match (help.is_empty(), alone.is_empty()) {
            (_, true) => help,
            (true, false) => alone,
            (false, false) => format!("{help}; {alone}"),
        };
        (summary, help)
    }
}

/// How many more stand before a workload.
pub(crate) fn more_before(n: usize) -> String {
    if n == 1 { "; one more comes before it".to_owned() } else { format!("; {n} more come before it") }
}

/// A list in the order of its keys, asked for one after another in the same order.
pub(crate) struct Alongside<I: Iterator>(Peekable<I>);

impl<K: Ord + Copy, V, I: Iterator<Item = (K, V)>> Alongside<I> {
    pub(crate) fn new(list: impl IntoIterator<IntoIter = I>) -> Self {
        Self(list.into_iter().peekable())
    }

    pub(crate) fn at(&mut self, key: K) -> Option<V> {
        while self.0.next_if(|(of, _)| *of < key).is_some() {}
        self.0.next_if(|(of, _)| *of == key).map(|(_, value)| value)
    }
}
