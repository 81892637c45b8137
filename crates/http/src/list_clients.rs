//! Counts the lists of each client: a client that lists often costs the server more than one that watches.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::header::USER_AGENT;
use axum::http::request::Parts;
use parking_lot::Mutex;

use watchet_api::UserInfo;

/// The maximum number of clients. A further one replaces the one whose last list is the oldest.
const CLIENTS_MAX: usize = 256;
/// The maximum length of a user agent in bytes; the rest is omitted.
const USER_AGENT_BYTES_MAX: usize = 256;

/// The name of a user, and a header User-Agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Client {
    /// The name of the user.
    pub(crate) user: String,
    /// The header.
    pub(crate) user_agent: String,
}

/// The lists of a client.
#[derive(Debug, Clone, Copy, Default)]
struct Lists {
    number: u64,
    /// The value of [`Clients::lists`] at the last one.
    last: u64,
}

#[derive(Debug, Default)]
struct Clients {
    lists: u64,
    by_client: HashMap<Client, Lists>,
}

/// The clients that have listed since the start of the server.
#[derive(Debug, Default)]
pub(crate) struct ListClients(Mutex<Clients>);

impl ListClients {
    /// Counts a list.
    pub(crate) fn count(&self, parts: &Parts) {
        let user = parts.extensions.get::<Arc<UserInfo>>();
        let user_agent = parts.headers.get(USER_AGENT);
        let user_agent = user_agent.map(|agent| String::from_utf8_lossy(agent.as_bytes()));
        let user_agent = user_agent.unwrap_or_default();
        let end = user_agent.floor_char_boundary(USER_AGENT_BYTES_MAX);
        self.count_client(Client {
            user: user.map(|user| user.name.clone()).unwrap_or_default(),
            user_agent: user_agent[..end].to_owned(),
        });
    }

    fn count_client(&self, client: Client) {
        let mut clients = self.0.lock();
        let Clients { lists, by_client } = &mut *clients;
        *lists += 1;
        if by_client.len() >= CLIENTS_MAX && !by_client.contains_key(&client) {
            let oldest = by_client.iter().min_by_key(|(_, lists)| lists.last);
            if let Some(oldest) = oldest.map(|(client, _)| client.clone()) {
                by_client.remove(&oldest);
            }
        }
        let entry = by_client.entry(client).or_default();
        entry.number += 1;
        entry.last = *lists;
    }

    /// Returns the clients and the numbers of their lists, in the order of their names.
    pub(crate) fn all(&self) -> Vec<(Client, u64)> {
        let clients = self.0.lock();
        let all = clients.by_client.iter();
        let mut all: Vec<_> = all.map(|(c, lists)| (c.clone(), lists.number)).collect();
        drop(clients);
        all.sort();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_clients_is_bounded_and_active_ones_remain() {
        let clients = ListClients::default();
        let client = |number: usize| Client {
            user: "ann".to_owned(),
            user_agent: format!("agent/{number}"),
        };
        for number in 0..2 * CLIENTS_MAX {
            clients.count_client(client(0));
            clients.count_client(client(number));
        }
        let all = clients.all();
        assert_eq!(all.len(), CLIENTS_MAX);
        assert_eq!(all[0], (client(0), 2 * CLIENTS_MAX as u64 + 1));
        assert!(all.contains(&(client(2 * CLIENTS_MAX - 1), 1)));
        assert!(!all.contains(&(client(1), 1)));
    }

    #[test]
    fn a_long_user_agent_is_cut() {
        let clients = ListClients::default();
        let request = axum::http::Request::builder().header(USER_AGENT, "é".repeat(999));
        clients.count(&request.body(()).unwrap().into_parts().0);
        let all = clients.all();
        assert_eq!(all[0].0.user_agent, "é".repeat(USER_AGENT_BYTES_MAX / 2));
    }
}
