// Package tokenreviews caches the results of reviewing bearer tokens, so that most requests need
// only a lookup in memory. It drops a result as soon as it may be wrong.
//
// Cache implements authn.Tokens. The authenticators behind it review a token that is not cached,
// once for all waiting requests and within a bounded time. A success is cached for minutes, a
// rejection for seconds, and an undecided review not at all. Keys are a keyed hash of token and
// audiences, with a random key per process. Tokens are not stored. Authenticators that call another
// server are Shared: the client networks share its capacity.
//
// A result depends on objects: the service account, the objects that the token is bound to, the
// secret of a bootstrap token. They are derived from the token's claims and from the user. Run
// follows them in the watch cache. Every event that may change the validity of a token drops its
// result. Nothing is cached while Run does not follow. Two rules ensure that no result survives an
// event during its review:
//   - The objects that the token itself names are indexed before the review starts. An event
//     during the review prevents caching, and later requests start another review.
//   - The objects that only the user names are looked up after the result has been indexed. The
//     result is dropped if they are missing.
//
// Package build creates one Cache and runs it. The bearer authenticators and the TokenReview kind
// call it.
package tokenreviews
