//! Documents on their way into `json` and `jsonb` and back out of them.
//!
//! What comes out of `json` is what was written. What comes out of `jsonb` is the canonical form but for white space after
//! `,` and `:` and the order of keys, so that reading it is leaving out white space. Numbers keep their scale in `jsonb`,
//! strings their escapes (control characters as `\u00xx`, nothing else escaped that need not be).

use wow_store_api::{Event, EventName, Payload};

/// The document of commits' events: an array of `{"name", "revision", "body"}`.
pub(crate) fn write_events(events: &[Event]) -> String {
    let size: usize =
        events.iter().map(|event| event.body.as_json().len() + event.name.as_str().len() + 48).sum();
    let mut text = String::with_capacity(size + 2);
    text.push('[');
    for (index, event) in events.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str("{\"name\":");
        write_string(&mut text, event.name.as_str());
        text.push_str(",\"revision\":");
        text.push_str(&event.revision.to_string());
        text.push_str(",\"body\":");
        text.push_str(event.body.as_json());
        text.push('}');
    }
    text.push(']');
    text
}

/// The bytes of the events' bodies, which the size of a page counts.
pub(crate) fn bodies_size(events: &[Event]) -> usize {
    events.iter().map(|event| event.body.as_json().len()).sum()
}

fn write_string(text: &mut String, string: &str) {
    text.push('"');
    for c in string.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            c if c < ' ' => {
                text.push_str("\\u00");
                let code = u32::from(c);
                text.extend([code >> 4, code & 15].iter().filter_map(|digit| char::from_digit(*digit, 16)));
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

/// A document from the text of a `jsonb`.
pub(crate) fn payload(text: &str) -> Option<Payload> {
    let mut reader = Reader { text, at: 0 };
    let mut compact = String::with_capacity(text.len());
    reader.copy(&mut compact)?;
    (reader.at == text.len()).then(|| Payload::from_stored(compact))
}

/// The events of a commit from the text of the `jsonb` that [`write_events`] became.
pub(crate) fn read_events(text: &str) -> Option<Vec<Event>> {
    let mut reader = Reader { text, at: 0 };
    let mut events = Vec::new();
    reader.take(b'[')?;
    loop {
        events.push(reader.event()?);
        if reader.take(b',').is_none() {
            break;
        }
    }
    reader.take(b']')?;
    (reader.at == text.len()).then_some(events)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Takes this byte, and the space behind it.
    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then_some(())?;
        self.at += 1;
        if (byte == b',' || byte == b':') && self.peek() == Some(b' ') {
            self.at += 1;
        }
        Some(())
    }

    /// A string with its quotes.
    fn string(&mut self) -> Option<&'a str> {
        let start = self.at;
        self.take(b'"')?;
        loop {
            let rest = self.text.as_bytes().get(self.at..)?;
            let step = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
            let found = *rest.get(step)?;
            self.at += step + if found == b'"' { 1 } else { 2 };
            if found == b'"' {
                return self.text.get(start..self.at);
            }
        }
    }

    /// Copies one value without its white space.
    fn copy(&mut self, to: &mut String) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => to.push_str(self.string()?),
                open @ (b'{' | b'[') => {
                    depth += 1;
                    self.take(open)?;
                    to.push(char::from(open));
                    if !matches!(self.peek()?, b'}' | b']') {
                        continue;
                    }
                }
                b'}' | b']' => {}
                _ => {
                    let start = self.at;
                    while self.peek().is_some_and(|byte| !matches!(byte, b',' | b'}' | b']')) {
                        self.at += 1;
                    }
                    to.push_str(self.text.get(start..self.at)?);
                    if start == self.at {
                        return None;
                    }
                }
            }
            // Behind a value or a key: what closes, and then what goes on.
            while let Some(close @ (b'}' | b']')) = self.peek().filter(|_| depth > 0) {
                depth -= 1;
                self.take(close)?;
                to.push(char::from(close));
            }
            if depth == 0 {
                return Some(());
            }
            let separator = self.peek()?;
            if separator != b',' && separator != b':' {
                return None;
            }
            self.take(separator)?;
            to.push(char::from(separator));
        }
    }

    fn event(&mut self) -> Option<Event> {
        let (mut name, mut revision, mut body) = (None, None, None);
        self.take(b'{')?;
        loop {
            let key = self.string()?;
            self.take(b':')?;
            match key {
                "\"name\"" => name = Some(event_name(self.string()?)?),
                "\"revision\"" => revision = Some(self.digits()?),
                "\"body\"" => {
                    let mut text = String::new();
                    self.copy(&mut text)?;
                    body = Some(Payload::from_stored(text));
                }
                // Written by a later version.
                _ => self.copy(&mut String::new())?,
            }
            if self.take(b',').is_none() {
                break;
            }
        }
        self.take(b'}')?;
        Some(Event { name: name?, revision: revision?, body: body? })
    }

    fn digits(&mut self) -> Option<u32> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.text.get(start..self.at)?.parse().ok()
    }
}

/// An event's name from its string with quotes.
fn event_name(quoted: &str) -> Option<EventName> {
    if quoted.contains('\\') {
        let text: String = Payload::from_stored(quoted).decode().ok()?;
        return EventName::new(text).ok();
    }
    EventName::new(quoted.strip_prefix('"')?.strip_suffix('"')?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_outside_strings_is_left_out() {
        for (from_jsonb, canonical) in [
            ("1.10", "1.10"),
            ("\"a, b: {\\\" }\"", "\"a, b: {\\\" }\""),
            ("[]", "[]"),
            ("{}", "{}"),
            ("{\"a\": [1, 2, {}], \"b, c\": {\"d\": null}}", "{\"a\":[1,2,{}],\"b, c\":{\"d\":null}}"),
            ("[[], {}, [[1]], \"\\\\\"]", "[[],{},[[1]],\"\\\\\"]"),
            ("{\"\": {\"\": []}}", "{\"\":{\"\":[]}}"),
        ] {
            let found = payload(from_jsonb).map(|payload| payload.as_json().to_owned());
            assert_eq!(found.as_deref(), Some(canonical), "{from_jsonb}");
        }
    }

    #[test]
    fn damage_is_not_a_document() {
        for text in ["", "{", "[1, 2", "\"a", "{\"a\": 1}}", "[1 2] 3", ",", "[,]"] {
            assert!(payload(text).is_none(), "{text}");
        }
    }

    #[test]
    fn events_come_back() {
        let event = |name: &str, json: &str| Event {
            name: EventName::new(name).unwrap(),
            revision: 7,
            body: Payload::from_json(json).unwrap(),
        };
        let events = vec![event("a\"\\\n\u{1}é", "{\"a\":[1.10,{}],\"b\":\"x\"}"), event("b", "null")];
        let written = write_events(&events);
        assert_eq!(read_events(&written).unwrap(), events, "compact");
        let spaced = "[{\"body\": {\"b\": \"x\"}, \"name\": \"b\", \"revision\": 7}]";
        assert_eq!(read_events(spaced).unwrap(), vec![event("b", "{\"b\":\"x\"}")], "as jsonb writes it");
        assert!(read_events("[]").is_none(), "a commit has at least one event");
    }
}
