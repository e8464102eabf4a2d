// Package responsewriters encodes responses. It chooses the media type and form of a response
// (Encoder: the object itself, its metadata, or a table row), writes lists in chunks and optionally
// compressed, encodes watch events, and writes responses that are not made from stored bytes
// (Responder: errors and operations).
//
//	Responses.ForObject, ForList, ForStream ─► Encoder ─► WriteObject │ WriteList, StreamList │ AppendEvent
//
// Objects and their metadata are encoded from their stored bytes. Encodings are kept on the cache's
// entries and shared between requests: watch events, table cells, converted documents and, while
// memory is available, list items. Endpoints and operations call this package, and the server calls
// it for errors of its filters. It makes no decisions about the request.
//
// An Encoder belongs to one response. Long responses acquire a concurrency limit for each chunk
// (Limiter) and release it while they write to the client.
package responsewriters
