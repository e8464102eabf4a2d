// Package reviews keeps what bearer tokens were found to be worth, so that most
// requests cost a look-up in memory, and forgets it at once when it ceases to be
// true.
//
// Cache answers authn.Tokens. A token that is not kept is reviewed by the
// authenticators behind it, once for all requests that wait for it, and within a
// bounded time. A good answer is kept for minutes, a refusal for seconds, and
// "could not be decided" not at all. Keys are a keyed hash of token and
// audiences, under a key that the process draws when it starts; tokens are not
// kept, but that a connection remembers its last one. Authenticators that ask another
// server are Shared: the networks that tokens come from share what it can be asked.
//
// An answer depends on objects: the service account, what the token is bound to,
// the secret of a bootstrap token. Which these are is read from the token's
// claims and from the user. Run follows them in the watch cache. Every event that
// may end (or begin) the worth of a token drops its answer, and while Run does not
// follow, nothing is kept. So that no answer outlives an event that it raced with:
//   - the objects that the token itself names are indexed before the review
//     begins; an event during it makes the answer one that is not kept, and later
//     requests begin a review of their own;
//   - the objects that only the user names are looked up after the answer has
//     been indexed, and it is dropped when they are not there.
//
// The front end's assembly makes one Cache and runs it; the bearer authenticators
// and the TokenReview kind ask it.
package reviews
