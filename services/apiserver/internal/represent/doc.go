// Package represent is how an answer is written: what media type and form a
// client gets (Form: the object itself, its metadata, a table row), lists in
// pieces, compressed or not, events of a watch, and the answers that are not made
// from stored bytes (Responder: errors, operations).
//
//	Answers.ForObject, ForList, ForStream ─► Form ─► WriteObject │ WriteList, StreamList │ AppendEvent
//
// Objects and their metadata are written from their stored bytes. Events of watches,
// cells of tables, what has to be decoded and, while there is memory to spare, items of
// lists are kept on the cache's entries and shared. Endpoints and operations call it, and the server for its own errors; it
// decides nothing.
package represent
