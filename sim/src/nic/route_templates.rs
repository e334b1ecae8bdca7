//! The headers of the routes that the queue pairs of a device use. Queue pairs with the same addresses share one copy.

use crate::wire::{Route, RouteTemplate};
use std::collections::VecDeque;
use std::sync::Arc;

/// How many routes are remembered. More of them work as well, but a queue pair then may get a copy of its own.
const LIMIT: usize = 64;

/// The routes that were used last, oldest first.
#[derive(Debug, Default)]
pub(crate) struct RouteTemplates(VecDeque<Arc<RouteTemplate>>);

impl RouteTemplates {
    /// The headers of a route.
    pub(crate) fn find(&mut self, route: &Route) -> Arc<RouteTemplate> {
        if let Some(known) = self.0.iter().find(|known| known.is_of(route)) {
            return Arc::clone(known);
        }
        if self.0.len() == LIMIT {
            self.0.pop_front();
        }
        let template = Arc::new(RouteTemplate::new(route));
        self.0.push_back(Arc::clone(&template));
        template
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::LocalRoute;

    fn to(destination: u16) -> Route {
        LocalRoute { source: 1, destination, service_level: 0, virtual_lane: 0, global: None }.into()
    }

    #[test]
    fn queue_pairs_of_one_route_share_it_until_too_many_others_follow() {
        let mut templates = RouteTemplates::default();
        let first = templates.find(&to(0));
        for destination in 1..LIMIT as u16 {
            assert!(!Arc::ptr_eq(&templates.find(&to(destination)), &first), "another route");
        }
        assert!(Arc::ptr_eq(&templates.find(&to(0)), &first), "all of them fit");
        templates.find(&to(LIMIT as u16));
        assert!(!Arc::ptr_eq(&templates.find(&to(0)), &first), "the oldest was forgotten");
        assert_eq!(templates.0.len(), LIMIT);
    }
}
