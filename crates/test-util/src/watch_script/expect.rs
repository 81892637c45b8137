//! The expectations of a run: compares what a client received with the script.

use std::future::poll_fn;
use std::task::Poll;

use tokio::time::{sleep, timeout};

use super::clients::{normalized, object_item, poll_read, reading};
use super::driver::Driver;
use super::failure::Failure;
use super::item::{Item, ObjectItem};
use super::run::Run;
use super::script::{Action, Step};

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
                    .map(|object| object_item(object, &self.versions));
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
        self.compare(step, name, expected, received)
    }

    pub(super) async fn expect_watch(
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
            let clients = &mut self.watches;
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
            reading(&mut self.watches, sleep(timing.silence)).await;
        }
        let client = self.client(name);
        let take = if is_blessing || count == 0 {
            client.received.len()
        } else {
            count.min(client.received.len())
        };
        let received: Vec<_> = client.received.drain(..take).collect();
        let received = received
            .into_iter()
            .map(|item| normalized(item, &self.versions))
            .collect();
        self.compare(step, name, expected, received)
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
        expected: &[Item],
        mut received: Vec<Item>,
    ) -> Result<(), Failure> {
        let expanded = self.expand(expected);
        let has_content = |item: &Item| {
            matches!(
                item,
                Item::Object(ObjectItem {
                    content: Some(_),
                    ..
                })
            )
        };
        let any_content = expanded.iter().any(has_content);
        for (index, item) in received.iter_mut().enumerate() {
            // An item beyond those of the script is shown with its content if any expected item has content.
            let is_compared = expanded.get(index).map_or(any_content, has_content);
            if let (Item::Object(object), false) = (item, is_compared) {
                object.content = None;
            }
        }
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
