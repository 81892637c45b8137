//! Runs a script against a driver. While a step is executed, the clients that are not paused read their watches.

use std::collections::BTreeMap;

use tokio::time::sleep;

use super::clients::{Client, Clients, Stream, normalized, reading};
use super::driver::{
    ApiError, Driver, Informer as _, InformerRequest, ListResponse, ReadRequest, Received,
    WriteRequest,
};
use super::failure::Failure;
use super::item::Item;
use super::object::{ObjectName, StoredObject};
use super::script::{
    Action, InformerOptions, Link, Match, Read, Script, StartVersion, Step, Write,
};
use super::versions::Versions;

/// Runs a script. With `bless`, expectations do not fail: the returned script has the expectations that the run meets.
///
/// # Errors
/// Returns the first step whose expectation is not met, or whose client receives more than the script expects.
pub async fn run<D: Driver>(
    script: &Script,
    driver: &mut D,
    bless: bool,
) -> Result<Vec<String>, Failure> {
    let start = driver.start(&script.namespaces()).await;
    let mut run = Run {
        script,
        driver,
        versions: Versions::starting_at(start),
        live: BTreeMap::new(),
        uids: 0,
        stamps: 0,
        clients: BTreeMap::new(),
        informers: BTreeMap::new(),
        handlers: BTreeMap::new(),
        lists: BTreeMap::new(),
        blessed: bless.then(BTreeMap::new),
    };
    let result = run.steps().await;
    let driver = run.driver.name();
    result.map_err(|failure| failure.with_context(driver, run.versions.describe()))?;
    Ok(blessed(script, run.blessed.unwrap_or_default()))
}

/// Returns the lines of the script with replaced expectations, by line.
fn blessed(script: &Script, replaced: BTreeMap<usize, String>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut index = 0;
    while index < script.lines.len() {
        let step = script.steps.iter().find(|step| step.line == index + 1);
        match (step, replaced.get(&(index + 1))) {
            (Some(step), Some(text)) => {
                lines.extend(text.lines().map(str::to_owned));
                index = step.last_line;
            }
            _ => {
                lines.push(script.lines[index].clone());
                index += 1;
            }
        }
    }
    lines
}

/// The state of a run.
pub(super) struct Run<'a, D: Driver> {
    pub(super) script: &'a Script,
    pub(super) driver: &'a mut D,
    pub(super) versions: Versions,
    /// The stored objects.
    live: BTreeMap<ObjectName, StoredObject>,
    uids: usize,
    stamps: usize,
    pub(super) clients: Clients<D::Watch>,
    pub(super) informers: BTreeMap<String, D::Informer>,
    /// The informer of each handler.
    handlers: BTreeMap<String, String>,
    pub(super) lists: BTreeMap<String, Result<ListResponse, ApiError>>,
    /// The new text of expectations, by line.
    pub(super) blessed: Option<BTreeMap<usize, String>>,
}

impl<D: Driver> Run<'_, D> {
    async fn steps(&mut self) -> Result<(), Failure> {
        for step in &self.script.steps {
            self.step(step).await?;
        }
        self.finish().await
    }

    /// Waits a moment and fails if a client has received items that no step expects.
    async fn finish(&mut self) -> Result<(), Failure> {
        let is_reading = |client: &Client<D::Watch>| client.stream.is_some() && !client.is_paused;
        if self.clients.values().any(is_reading) {
            let silence = sleep(self.driver.timing().silence);
            reading(&mut self.clients, silence).await;
        }
        let clients: Vec<String> = self.clients.keys().cloned().collect();
        clients
            .iter()
            .try_for_each(|client| self.expect_read(client))
    }

    /// Fails if the client has received an item that no step expects.
    fn expect_read(&self, name: &str) -> Result<(), Failure> {
        let client = &self.clients[name];
        if client.received.is_empty() || self.blessed.is_some() {
            return Ok(());
        }
        let received = client.received.iter().cloned();
        let received: Vec<Item> = received
            .map(|item| normalized(item, &self.versions))
            .collect();
        let message = format!("after this step, {name} received more than the script expects");
        Err(Failure::new(self.script, &client.step, message)
            .with_difference(&[], &self.fold(&received)))
    }

    async fn step(&mut self, step: &Step) -> Result<(), Failure> {
        let (clients, versions) = (&mut self.clients, &self.versions);
        match &step.action {
            Action::Write {
                writes,
                version,
                count,
            } => {
                for index in 1..=*count {
                    self.write(step, writes, *version, (index, *count)).await?;
                }
            }
            Action::Watch(client, read) => return self.watch(step, client, read).await,
            Action::List(client, read) => return self.list(step, client, read).await,
            Action::Pause(client) => self.client(client).is_paused = true,
            Action::Resume(client) => self.client(client).is_paused = false,
            Action::Close(client) => {
                self.expect_read(client)?;
                self.clients.remove(client);
                if let Some(informer) = self.handlers.remove(client) {
                    self.informer(&informer).remove_handler(client);
                }
            }
            Action::Compact(at) => {
                let at = versions.resolve(*at);
                reading(clients, self.driver.compact(at)).await;
            }
            Action::Informer(name, read, options) => self.start_informer(name, read, options).await,
            Action::Handler(name, informer) => self.add_handler(step, name, informer)?,
            Action::Cut(Link::Storage) => reading(clients, self.driver.cut()).await,
            Action::Cut(Link::Informer(name)) => {
                self.informer(name).set_connected(false);
                self.informer(name).set_connected(true);
            }
            Action::Disconnect(link) => self.set_connected(link, false).await,
            Action::Reconnect(link) => self.set_connected(link, true).await,
            Action::Restart => {
                self.finish().await?;
                self.clients.retain(|_, client| client.is_handler);
                reading(&mut self.clients, self.driver.restart()).await;
            }
            Action::Sleep(seconds) => {
                let time = std::time::Duration::from_secs(*seconds);
                reading(clients, sleep(time)).await;
            }
            Action::Expect(client, items) if self.lists.contains_key(client) => {
                return self.expect_list(step, client, items);
            }
            Action::Expect(informer, items) if self.informers.contains_key(informer) => {
                return self.expect_informer(step, informer, items).await;
            }
            Action::Expect(client, items) => return self.expect_client(step, client, items).await,
        }
        Ok(())
    }

    pub(super) fn client(&mut self, name: &str) -> &mut Client<D::Watch> {
        self.clients
            .get_mut(name)
            .expect("the parser checks the names")
    }

    async fn write(
        &mut self,
        step: &Step,
        writes: &[Write],
        version: u32,
        (index, count): (usize, usize),
    ) -> Result<(), Failure> {
        let mut requests = Vec::new();
        for write in writes {
            let object = write.object().numbered(index, count);
            let previous = self.live.get(&object).cloned();
            if previous.is_none() && matches!(write, Write::Delete(_)) {
                let message = format!("{object} does not exist");
                return Err(Failure::new(self.script, step, message));
            }
            let next = self.next_object(write, previous.as_ref());
            match &next {
                Some(next) => self.live.insert(object.clone(), next.clone()),
                None => self.live.remove(&object),
            };
            requests.push(WriteRequest {
                object,
                previous,
                next,
            });
        }
        let writing = self.driver.write(&requests);
        let at = reading(&mut self.clients, writing).await;
        self.versions
            .add(at, version, (index, count), writes[0].object());
        reading(&mut self.clients, tokio::task::yield_now()).await;
        Ok(())
    }

    fn next_object(
        &mut self,
        write: &Write,
        previous: Option<&StoredObject>,
    ) -> Option<StoredObject> {
        let (content, is_unreadable) = match write {
            Write::Put(_, content) => (content.clone(), false),
            Write::Corrupt(_) => (Default::default(), true),
            Write::Delete(_) => return None,
        };
        self.stamps += 1;
        let uid = previous
            .map(|previous| previous.uid.clone())
            .unwrap_or_else(|| {
                self.uids += 1;
                format!("uid-{}", self.uids)
            });
        Some(StoredObject {
            content,
            uid,
            stamp: self.stamps.to_string(),
            is_unreadable,
        })
    }

    fn request(&self, read: &Read) -> ReadRequest {
        let version = match read.from {
            StartVersion::Unset => None,
            StartVersion::Zero => Some(0),
            StartVersion::At(version) => Some(self.versions.resolve(version)),
        };
        let token = read
            .continued
            .as_ref()
            .and_then(|list| match &self.lists[list] {
                Ok(list) => list.continue_token.clone(),
                Err(error) => error.continue_token.clone(),
            });
        ReadRequest::new(read, version, token)
    }

    async fn watch(&mut self, step: &Step, name: &str, read: &Read) -> Result<(), Failure> {
        if self.clients.contains_key(name) {
            self.expect_read(name)?;
        }
        let request = self.request(read);
        let opening = self.driver.watch(&request);
        let opened = reading(&mut self.clients, opening).await;
        let client = match opened {
            Ok(stream) => Client::new(Some(Stream::Watch(stream)), step),
            Err(error) => {
                let mut client = Client::new(None, step);
                client.received.extend([Some(Received::Error(error)), None]);
                client
            }
        };
        self.clients.insert(name.to_owned(), client);
        Ok(())
    }

    async fn list(&mut self, step: &Step, name: &str, read: &Read) -> Result<(), Failure> {
        let request = self.request(read);
        if read.continued.is_some() && request.continue_token.is_none() {
            let message = "the list that it continues has no next page".to_owned();
            return Err(Failure::new(self.script, step, message));
        }
        let listing = self.driver.list(&request);
        let result = reading(&mut self.clients, listing).await;
        if let (Ok(list), Some(Match::Exact), Some(version)) =
            (&result, read.version_match, request.resource_version)
            && list.version != version
        {
            let message = format!(
                "an exact list at {version} has the version {}",
                list.version
            );
            return Err(Failure::new(self.script, step, message));
        }
        self.lists.insert(name.to_owned(), result);
        Ok(())
    }

    async fn start_informer(&mut self, name: &str, read: &Read, options: &InformerOptions) {
        let request = InformerRequest::new(read, options);
        let starting = self.driver.informer(&request);
        let informer = reading(&mut self.clients, starting).await;
        self.informers.insert(name.to_owned(), informer);
    }

    fn add_handler(&mut self, step: &Step, name: &str, informer: &str) -> Result<(), Failure> {
        if self.clients.contains_key(name) {
            self.expect_read(name)?;
        }
        let notifications = self.informer(informer).add_handler(name);
        let client = Client::new(Some(Stream::Handler(notifications)), step);
        self.clients.insert(name.to_owned(), client);
        self.handlers.insert(name.to_owned(), informer.to_owned());
        Ok(())
    }

    fn informer(&mut self, name: &str) -> &mut D::Informer {
        self.informers
            .get_mut(name)
            .expect("the parser checks the names")
    }

    async fn set_connected(&mut self, link: &Link, connected: bool) {
        match link {
            Link::Storage => {
                reading(&mut self.clients, self.driver.set_connected(connected)).await;
            }
            Link::Informer(name) => self.informer(name).set_connected(connected),
        }
    }
}
