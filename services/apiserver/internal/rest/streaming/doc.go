// Package streaming holds what long responses need and resources do not matter for: the context of
// a watch, and WebSocket messages of watches and logs. Package handlers writes watches.
package streaming
