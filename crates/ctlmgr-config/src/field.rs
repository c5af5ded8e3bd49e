//! One value of one key, with everything needed to complain about it.

use std::str::FromStr;

use ctlmgr_model::{Bytes, ClassName, Headroom, Mode, Origin, Percent, Weight};
use glob::Pattern;
use toml::Spanned;
use toml::de::DeValue;

use crate::Fault;

/// A text file with its line starts.
pub(crate) struct Source<'a> {
    pub file: &'a str,
    pub text: &'a str,
}

impl Source<'_> {
    pub fn line(&self, offset: usize) -> usize {
        self.text.as_bytes().iter().take(offset).filter(|&&b| b == b'\n').count() + 1
    }

    pub fn fault(&self, offset: usize, key: &str, message: impl Into<String>) -> Fault {
        Fault {
            file: self.file.to_owned(),
            line: Some(self.line(offset)),
            key: key.to_owned(),
            message: message.into(),
        }
    }
}

/// A value under its dotted key.
pub(crate) struct Field<'a> {
    pub source: &'a Source<'a>,
    pub key: &'a str,
    pub value: &'a Spanned<DeValue<'a>>,
}

type Read<T> = Result<T, Fault>;

impl Field<'_> {
    pub fn origin(&self) -> Origin {
        Origin {
            file: self.source.file.to_owned(),
            line: self.source.line(self.value.span().start),
        }
    }

    pub fn fault(&self, message: impl Into<String>) -> Fault {
        self.source.fault(self.value.span().start, self.key, message)
    }

    fn expected(&self, what: &str) -> Fault {
        self.fault(format!("expected {what}, found {}", kind(self.value.get_ref())))
    }

    pub fn text(&self, what: &str) -> Read<&str> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text),
            _ => Err(self.expected(what)),
        }
    }

    pub fn integer(&self, what: &str) -> Read<i64> {
        let fail = || self.expected(what);
        match self.value.get_ref() {
            DeValue::Integer(n) => {
                i64::from_str_radix(&n.as_str().replace('_', ""), n.radix()).map_err(|_| fail())
            }
            _ => Err(fail()),
        }
    }

    pub fn boolean(&self) -> Read<bool> {
        match self.value.get_ref() {
            DeValue::Boolean(value) => Ok(*value),
            _ => Err(self.expected("true or false")),
        }
    }

    pub fn weight(&self) -> Read<Weight> {
        Weight::new(self.integer("a weight, 1–10000")?).map_err(|e| self.fault(e.to_string()))
    }

    pub fn seconds(&self) -> Read<u64> {
        self.seconds_within(1, 86_400)
    }

    pub fn seconds_within(&self, least: u64, most: u64) -> Read<u64> {
        self.whole_within("seconds", least, most)
    }

    pub fn whole_within(&self, what: &str, least: u64, most: u64) -> Read<u64> {
        let number = self.integer(&format!("{what}, {least}–{most}"))?;
        match u64::try_from(number) {
            Ok(n) if (least..=most).contains(&n) => Ok(n),
            _ => Err(self.fault(format!("{number} is outside {least}–{most} {what}"))),
        }
    }

    /// A number of at least zero with at most two digits behind the point, in hundredths.
    pub fn hundredths(&self, most: u32) -> Read<u32> {
        let text = match self.value.get_ref() {
            DeValue::Integer(n) => n.as_str(),
            DeValue::Float(n) => n.as_str(),
            _ => return Err(self.expected(&format!("a number, 0–{most}"))),
        };
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let digits = format!("{}{part:0<2}", whole.trim_start_matches('+'));
        let number = digits.parse::<u32>().ok().filter(|n| part.len() <= 2 && *n <= most * 100);
        number.ok_or_else(|| {
            self.fault(format!("{text} is no number within 0–{most} with two decimals at most"))
        })
    }

    pub fn bytes(&self) -> Read<Bytes> {
        if let DeValue::Integer(_) = self.value.get_ref() {
            let number = self.integer("a size such as \"512M\"")?;
            return u64::try_from(number)
                .map(Bytes)
                .map_err(|_| self.fault(format!("{number} is no size")));
        }
        let text = self.text("a size such as \"512M\"")?;
        Bytes::from_str(text).map_err(|e| self.fault(e.to_string()))
    }

    pub fn bytes_within(&self, least: Bytes, most: Bytes) -> Read<Bytes> {
        match self.bytes()? {
            b if (least..=most).contains(&b) => Ok(b),
            b => Err(self.fault(format!("{b} is outside {least}–{most}"))),
        }
    }

    pub fn percent(&self) -> Read<Percent> {
        self.percent_within(50)
    }

    pub fn percent_within(&self, most: u8) -> Read<Percent> {
        let text = self.text("a percentage such as \"5%\"")?;
        let number = text.strip_suffix('%').and_then(|n| n.trim().parse::<u8>().ok());
        match number {
            Some(n) if n <= most => Ok(Percent(n)),
            _ => Err(self.fault(format!("`{text}` is no percentage within 0–{most} %"))),
        }
    }

    pub fn headroom(&self) -> Read<Headroom> {
        match self.value.get_ref() {
            DeValue::String(text) if text.ends_with('%') => self.percent().map(Headroom::Percent),
            _ => self.bytes().map(Headroom::Bytes),
        }
    }

    pub fn mode(&self) -> Read<Mode> {
        let all = [("off", Mode::Off), ("observe", Mode::Observe), ("act", Mode::Act)];
        self.one_of("mode", &all)
    }

    /// One of some words.
    pub fn one_of<T: Copy>(&self, noun: &str, all: &[(&str, T)]) -> Read<T> {
        let quoted: Vec<String> = all.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        let expected = match quoted.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            _ => quoted.concat(),
        };
        let text = self.text(&expected)?;
        if let Some((_, value)) = all.iter().find(|(word, _)| *word == text) {
            return Ok(*value);
        }
        let near = crate::keys::best(all.iter().map(|(word, _)| *word), text).unwrap_or_default();
        Err(self
            .fault(format!("`{text}` is no {noun}: expected {expected}; did you mean \"{near}\"?")))
    }

    pub fn pattern(&self) -> Read<Pattern> {
        self.pattern_of(self.text("a pattern such as \"web-*\"")?)
    }

    fn pattern_of(&self, text: &str) -> Read<Pattern> {
        if text.is_empty() {
            return Err(self.fault("an empty pattern matches nothing"));
        }
        Pattern::new(text).map_err(|e| {
            self.fault(format!("bad pattern `{text}` at character {}: {}", e.pos, e.msg))
        })
    }

    /// Names of classes, and where each stands.
    pub fn classes(&self) -> Read<Vec<(ClassName, Origin)>> {
        let what = "a list of classes such as [\"idle\"]";
        let DeValue::Array(items) = self.value.get_ref() else { return Err(self.expected(what)) };
        items
            .iter()
            .map(|value| {
                let field = Field { source: self.source, key: self.key, value };
                Ok((field.text("the name of a class")?.to_owned(), field.origin()))
            })
            .collect()
    }

    pub fn patterns(&self) -> Read<Vec<Pattern>> {
        let what = "a list of patterns such as [\"web-*\"]";
        let DeValue::Array(items) = self.value.get_ref() else { return Err(self.expected(what)) };
        items
            .iter()
            .map(|value| Field { source: self.source, key: self.key, value }.pattern())
            .collect()
    }
}

/// What a value is, in words.
pub(crate) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
