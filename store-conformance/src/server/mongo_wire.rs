//! As much of MongoDB's protocol as it takes to make a replica set: commands with numbers, strings and documents in
//! them, and a look at the reply. The suite does not depend on a driver.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

const OP_MSG: u32 = 2013;
const ANSWER: Duration = Duration::from_secs(10);

/// A document in the making.
#[derive(Debug, Default)]
pub(super) struct Document(Vec<u8>);

impl Document {
    fn element(mut self, kind: u8, key: &str, value: &[u8]) -> Self {
        self.0.push(kind);
        self.0.extend_from_slice(key.as_bytes());
        self.0.push(0);
        self.0.extend_from_slice(value);
        self
    }

    pub(super) fn number(self, key: &str, number: i32) -> Self {
        self.element(0x10, key, &number.to_le_bytes())
    }

    pub(super) fn text(self, key: &str, text: &str) -> Self {
        let mut value = length(text.len() + 1).to_vec();
        value.extend_from_slice(text.as_bytes());
        value.push(0);
        self.element(0x02, key, &value)
    }

    pub(super) fn document(self, key: &str, document: Self) -> Self {
        self.element(0x03, key, &document.finish())
    }

    pub(super) fn array(self, key: &str, documents: impl IntoIterator<Item = Self>) -> Self {
        let array = documents.into_iter().enumerate();
        let array = array.fold(Self::default(), |array, (index, it)| array.document(&index.to_string(), it));
        self.element(0x04, key, &array.finish())
    }

    fn finish(self) -> Vec<u8> {
        let mut bytes = length(self.0.len() + 5).to_vec();
        bytes.extend_from_slice(&self.0);
        bytes.push(0);
        bytes
    }
}

fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).expect("a short message").to_le_bytes()
}

/// The reply to a command, as bytes.
#[derive(Debug)]
pub(super) struct Reply(Vec<u8>);

impl Reply {
    /// Whether a field is true, or one of a number that is not zero.
    pub(super) fn is(&self, field: &str) -> bool {
        let holds = |kind: u8, value: &[u8]| {
            let mut wanted = vec![kind];
            wanted.extend_from_slice(field.as_bytes());
            wanted.push(0);
            wanted.extend_from_slice(value);
            self.0.windows(wanted.len()).any(|window| window == wanted)
        };
        holds(0x08, &[1]) || holds(0x01, &1_f64.to_le_bytes()) || holds(0x10, &1_i32.to_le_bytes())
    }

    /// The reply's text, as far as it is one, for messages.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).chars().filter(|c| !c.is_control()).collect()
    }
}

/// Sends a command to the server on this machine and reads the reply.
pub(super) fn command(port: u16, database: &str, command: Document) -> io::Result<Reply> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    let body = command.text("$db", database).finish();
    let mut message = length(16 + 4 + 1 + body.len()).to_vec();
    for number in [1, 0, OP_MSG, 0] {
        message.extend_from_slice(&number.to_le_bytes());
    }
    message.push(0);
    message.extend_from_slice(&body);
    stream.write_all(&message)?;
    let mut header = [0; 16];
    stream.read_exact(&mut header)?;
    let size = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    let mut reply = vec![0; usize::try_from(size).expect("a short reply").saturating_sub(header.len())];
    stream.read_exact(&mut reply)?;
    Ok(Reply(reply))
}
