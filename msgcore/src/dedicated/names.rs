//! Which ticket of the application's is which request of the worker's.

use super::tickets::Ticket;
use crate::Request;

/// Both ways: a look into a table each.
#[derive(Default)]
pub(super) struct Names {
    /// By the request's place.
    tickets: Vec<Option<(Request, Ticket)>>,
    /// By the ticket's.
    requests: Vec<Option<(Ticket, Request)>>,
    bound: usize,
}

impl Names {
    /// They are one from here on.
    #[inline]
    pub(super) fn bind(&mut self, ticket: Ticket, request: Request) {
        *place(&mut self.tickets, request.index()) = Some((request, ticket));
        *place(&mut self.requests, ticket.index()) = Some((ticket, request));
        self.bound += 1;
    }

    /// The ticket of a request that is bound.
    #[inline]
    pub(super) fn ticket_of(&self, request: Request) -> Option<Ticket> {
        let (bound, ticket) = (*self.tickets.get(request.index())?)?;
        (bound == request).then_some(ticket)
    }

    /// The request of a ticket that is bound.
    #[inline]
    pub(super) fn request_of(&self, ticket: Ticket) -> Option<Request> {
        let (bound, request) = (*self.requests.get(ticket.index())?)?;
        (bound == ticket).then_some(request)
    }

    /// They are over.
    #[inline]
    pub(super) fn release(&mut self, ticket: Ticket, request: Request) {
        self.tickets[request.index()] = None;
        self.requests[ticket.index()] = None;
        self.bound -= 1;
    }

    /// Whether there are any.
    pub(super) fn is_empty(&self) -> bool {
        self.bound == 0
    }
}

/// A place of a table, which grows to the most that were ever needed at once.
fn place<T>(table: &mut Vec<Option<T>>, index: usize) -> &mut Option<T> {
    if table.len() <= index {
        table.resize_with(index + 1, || None);
    }
    &mut table[index]
}

#[cfg(test)]
mod tests {
    use super::super::tickets::Tickets;
    use super::*;

    #[test]
    fn both_names_lead_to_each_other_until_they_are_released_and_their_successors_do_not() {
        let (mut names, mut tickets) = (Names::default(), Tickets::default());
        let request = |index: u64, generation: u64| Request::from_wire(generation << 32 | index);
        let (first, second) = (tickets.open().expect("room"), tickets.open().expect("room"));
        names.bind(first, request(9, 1));
        names.bind(second, request(3, 1));
        assert_eq!(names.ticket_of(request(3, 1)), Some(second));
        assert_eq!(names.request_of(first), Some(request(9, 1)));
        assert_eq!(names.ticket_of(request(9, 2)), None, "another that came to its place");
        assert_eq!(names.ticket_of(request(10_000, 1)), None);
        names.release(first, request(9, 1));
        assert_eq!((names.ticket_of(request(9, 1)), names.request_of(first)), (None, None));
        assert!(!names.is_empty());
        names.release(second, request(3, 1));
        assert!(names.is_empty());
    }
}
