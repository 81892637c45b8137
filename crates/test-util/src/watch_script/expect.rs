//! The expectations of a run: compares what a client received with the script.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::clients::{normalized, object_item, poll_read, reading};
use super::driver::{Driver, Informer as _};
use super::failure::Failure;
use super::item::{Item, ItemKind, ObjectItem};
use super::run::Run;
use super::script::{Action, Step};

/// How often the state of an informer is compared while it differs.
const STATE_POLL: Duration = Duration::from_millis(10);

impl<D: Driver> Run<'_, D> {
    pub(super) fn expect_list(
        &mut self,
        step: &Step,
        name: &str,
        expected: &[Item],
    ) -> Result<(), Failure> {
        let (mut received, token) = match &self.lists[name] {
            Ok(list) => {
                let objects = list
                    .items
                    .iter()
                    .cloned()
                    .map(|object| object_item(ItemKind::Listed, object, &self.versions));
                let mut items: Vec<Item> = objects.map(Item::Object).collect();
                // Compared only if the script has them.
                if expected
                    .iter()
                    .any(|item| matches!(item, Item::ListVersion(_)))
                {
                    items.push(Item::ListVersion(self.versions.of_state(list.version)));
                }
                if expected
                    .iter()
                    .any(|item| matches!(item, Item::Remaining(_)))
                {
                    items.extend(list.remaining.map(Item::Remaining));
                }
                (items, &list.continue_token)
            }
            Err(error) => (
                vec![Item::Error(error.code, error.reason.clone())],
                &error.continue_token,
            ),
        };
        received.extend(token.as_ref().map(|_| Item::Continue));
        self.compare(step, name, self.expand(expected), received)
    }

    pub(super) async fn expect_client(
        &mut self,
        step: &Step,
        name: &str,
        expected: &[Item],
    ) -> Result<(), Failure> {
        let count = self.expand(expected).len();
        let timing = self.driver.timing();
        let is_blessing = self.blessed.is_some();
        self.client(name).step = step.clone();
        if count > 0 && !is_blessing {
            let clients = &mut self.clients;
            let enough = poll_fn(|cx| {
                loop {
                    let client = clients.get_mut(name).expect("the parser checks the names");
                    if client.received.len() >= count || client.stream.is_none() {
                        return Poll::Ready(());
                    }
                    if !poll_read(clients, cx) {
                        return Poll::Pending;
                    }
                }
            });
            // If too few items arrive, the comparison below reports it.
            timeout(timing.patience, enough).await.ok();
        } else {
            reading(&mut self.clients, sleep(timing.silence)).await;
        }
        let client = self.client(name);
        let take = if is_blessing || count == 0 {
            client.received.len()
        } else {
            count.min(client.received.len())
        };
        let received: Vec<_> = client.received.drain(..take).collect();
        let is_handler = client.is_handler;
        let mut received: Vec<Item> = received
            .into_iter()
            .map(|item| normalized(item, &self.versions))
            .collect();
        let mut expanded = self.expand(expected);
        if is_handler {
            // An informer orders the notifications of each object only.
            received.sort_by(|a, b| object_name(a).cmp(object_name(b)));
            expanded.sort_by(|a, b| object_name(a).cmp(object_name(b)));
        }
        self.compare(step, name, expanded, received)
    }

    /// Waits until the informer has these objects, and this version if the script has one.
    pub(super) async fn expect_informer(
        &mut self,
        step: &Step,
        name: &str,
        expected: &[Item],
    ) -> Result<(), Failure> {
        let timing = self.driver.timing();
        let end = Instant::now() + timing.patience;
        let expanded = self.expand(expected);
        if self.blessed.is_some() {
            reading(&mut self.clients, sleep(timing.silence)).await;
        }
        loop {
            let received = self.informer_items(name, expected);
            let is_met = without_contents(&expanded, received.clone()) == expanded;
            if is_met || Instant::now() >= end || self.blessed.is_some() {
                return self.compare(step, name, expanded, received);
            }
            // An informer does not report when its state changes without a notification.
            reading(&mut self.clients, sleep(STATE_POLL)).await;
        }
    }

    fn informer_items(&self, name: &str, expected: &[Item]) -> Vec<Item> {
        let informer = &self.informers[name];
        let objects = informer.objects().into_iter();
        let objects = objects.map(|object| object_item(ItemKind::Listed, object, &self.versions));
        let mut items: Vec<Item> = objects.map(Item::Object).collect();
        let has_version = |item: &Item| matches!(item, Item::ListVersion(_));
        if expected.iter().any(has_version) {
            let version = informer.version();
            items.extend(version.map(|version| Item::ListVersion(self.versions.of_state(version))));
        }
        items
    }

    fn expand(&self, items: &[Item]) -> Vec<Item> {
        Item::expand(items, |object, index| {
            let count = self.versions.count(object.version.version.name);
            let width = count.to_string().len();
            object.name.replace('*', &format!("{index:0width$}"))
        })
    }

    pub(super) fn fold(&self, items: &[Item]) -> Vec<Item> {
        Item::fold(items, |object| {
            let pattern = self
                .versions
                .pattern(object.version)
                .filter(|pattern| pattern.contains('*'));
            pattern.map_or_else(|| object.name.clone(), str::to_owned)
        })
    }

    fn compare(
        &mut self,
        step: &Step,
        name: &str,
        expanded: Vec<Item>,
        received: Vec<Item>,
    ) -> Result<(), Failure> {
        let received = without_contents(&expanded, received);
        if expanded == received {
            return Ok(());
        }
        let received = self.fold(&received);
        if let Some(blessed) = &mut self.blessed {
            let line = Action::Expect(name.to_owned(), received.clone()).to_string();
            let text = match line.len() {
                ..=100 => line,
                _ => received
                    .iter()
                    .fold(format!("expect {name}:"), |text, item| {
                        format!("{text}\n    {item}")
                    }),
            };
            blessed.insert(step.line, text);
            return Ok(());
        }
        let message = format!("{name} did not receive what the script expects");
        Err(Failure::new(self.script, step, message)
            .with_difference(&self.fold(&expanded), &received))
    }
}

/// The name of the object of an item; empty if it has none.
fn object_name(item: &Item) -> &str {
    match item {
        Item::Object(object) => &object.name,
        _ => "",
    }
}

/// Removes the contents of the received objects that the script does not compare.
fn without_contents(expected: &[Item], mut received: Vec<Item>) -> Vec<Item> {
    let has_content = |item: &Item| {
        matches!(
            item,
            Item::Object(ObjectItem {
                content: Some(_),
                ..
            })
        )
    };
    let any_content = expected.iter().any(has_content);
    for (index, item) in received.iter_mut().enumerate() {
        // An item beyond those of the script is shown with its content if any expected item has content.
        let is_compared = expected.get(index).map_or(any_content, has_content);
        if let (Item::Object(object), false) = (item, is_compared) {
            object.content = None;
        }
    }
    received
}
