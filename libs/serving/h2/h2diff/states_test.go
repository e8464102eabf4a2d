package h2diff_test

import (
	"encoding/binary"
	"strings"

	"golang.org/x/net/http2"
)

// script is an exchange with a server.
type script struct {
	name string
	run  func(*client)
}

// state is the history of stream 3 when the frame arrives. Stream 1 is closed.
type state struct {
	name  string
	enter func(*client)
}

// states are those of RFC 9113, "Stream States", with each way to reach them.
var states = []state{
	{name: "idle", enter: func(*client) {}},
	{name: "open, read", enter: func(c *client) { c.request(3, "POST", "/read", false) }},
	{name: "open, counted", enter: func(c *client) { c.request(3, "POST", "/read", false, "content-length: 5") }},
	{name: "open, unread", enter: func(c *client) { c.request(3, "POST", "/wait", false) }},
	{name: "open, response begun", enter: func(c *client) { c.request(3, "POST", "/begun", false) }},
	{name: "half-closed by the client", enter: func(c *client) { c.request(3, "GET", "/wait", true) }},
	{name: "half-closed, response begun", enter: func(c *client) { c.request(3, "GET", "/begun", true) }},
	{name: "half-closed, blocked by the window", enter: func(c *client) { c.request(3, "GET", "/large?n=70000", true) }},
	{name: "closed by both ends", enter: func(c *client) { c.request(3, "GET", "/hello", true) }},
	{name: "closed by the response to an open request", enter: func(c *client) { c.request(3, "POST", "/hello", false) }},
	{name: "closed by the client's reset", enter: func(c *client) {
		c.request(3, "GET", "/wait", true)
		c.settle()
		c.reset(3, http2.ErrCodeCancel)
	}},
	{name: "closed by the client's reset of an open request", enter: func(c *client) {
		c.request(3, "POST", "/read", false)
		c.settle()
		c.reset(3, http2.ErrCodeCancel)
	}},
	{name: "closed by the server's reset", enter: func(c *client) {
		c.request(3, "POST", "/read", false)
		c.settle()
		c.window(3, 0)
	}},
	{name: "refused as malformed", enter: func(c *client) { c.headers(3, false, ":method: GET") }},
	{name: "unused before a newer stream", enter: func(c *client) { c.request(5, "GET", "/wait", true) }},
	{name: "in the middle of headers", enter: func(c *client) {
		c.raw(http2.FrameHeaders, http2.FlagHeadersEndStream, 3, c.fields(":method: GET", ":scheme: http")...)
		c.ledger.open(3)
	}},
	{name: "after the server's GOAWAY", enter: func(c *client) {
		c.request(3, "POST", "/read", false)
		c.settle()
		c.shutdown()
	}},
	{name: "idle after the server's GOAWAY", enter: func(c *client) {
		c.shutdown()
	}},
	{name: "after the client's GOAWAY", enter: func(c *client) {
		c.request(3, "POST", "/read", false)
		c.settle()
		c.requireNoError(c.framer.WriteGoAway(0, http2.ErrCodeNo, nil))
	}},
}

// frame is a frame to send on a stream.
type frame struct {
	name string
	send func(c *client, id uint32)
}

func rawFrame(kind http2.FrameType, flags http2.Flags, payload ...byte) func(*client, uint32) {
	return func(c *client, id uint32) { c.raw(kind, flags, id, payload...) }
}

// onItself returns a frame that makes its stream depend on itself.
func onItself(kind http2.FrameType) func(*client, uint32) {
	return func(c *client, id uint32) {
		c.raw(kind, http2.FlagHeadersPriority|http2.FlagHeadersEndHeaders, id,
			append(binary.BigEndian.AppendUint32(nil, id), 16)...)
	}
}

const padded = http2.FlagDataPadded

// frames are valid and invalid frames of each type.
var frames = []frame{
	{name: "DATA", send: rawFrame(http2.FrameData, 0, []byte("12345")...)},
	{name: "DATA END_STREAM", send: rawFrame(http2.FrameData, http2.FlagDataEndStream, []byte("12345")...)},
	{name: "DATA empty", send: rawFrame(http2.FrameData, 0)},
	{name: "DATA empty END_STREAM", send: rawFrame(http2.FrameData, http2.FlagDataEndStream)},
	{
		name: "DATA padded",
		send: rawFrame(http2.FrameData, padded|http2.FlagDataEndStream, append([]byte{3}, "12345\x00\x00\x00"...)...),
	},
	{name: "DATA padding only", send: rawFrame(http2.FrameData, padded, 2, 0, 0)},
	{name: "DATA padding as long as the frame", send: rawFrame(http2.FrameData, padded, 3, 0, 0)},
	{name: "DATA padded empty", send: rawFrame(http2.FrameData, padded)},
	{name: "HEADERS trailers", send: func(c *client, id uint32) { c.headers(id, true, "x-trailer: 1") }},
	{name: "HEADERS without END_STREAM", send: func(c *client, id uint32) { c.headers(id, false, "x-trailer: 1") }},
	{name: "HEADERS with pseudo-fields", send: func(c *client, id uint32) { c.headers(id, true, ":path: /", "x-trailer: 1") }},
	{name: "HEADERS with a connection field", send: func(c *client, id uint32) { c.headers(id, true, "connection: close") }},
	{name: "HEADERS of a request", send: func(c *client, id uint32) { c.request(id, "GET", "/hello", true) }},
	{name: "HEADERS padding as long as the frame",
		send: rawFrame(http2.FrameHeaders, http2.FlagHeadersPadded|http2.FlagHeadersEndHeaders, 3, 0, 0)},
	{name: "HEADERS priority too short",
		send: rawFrame(http2.FrameHeaders, http2.FlagHeadersPriority|http2.FlagHeadersEndHeaders, 0, 0, 0, 1)},
	{name: "HEADERS on itself", send: onItself(http2.FrameHeaders)},
	{name: "PRIORITY", send: rawFrame(http2.FramePriority, 0, 0, 0, 0, 1, 16)},
	{name: "PRIORITY short", send: rawFrame(http2.FramePriority, 0, 0, 0, 0, 1)},
	{name: "PRIORITY on itself", send: onItself(http2.FramePriority)},
	{name: "RST_STREAM", send: rawFrame(http2.FrameRSTStream, 0, 0, 0, 0, 8)},
	{name: "RST_STREAM NO_ERROR", send: rawFrame(http2.FrameRSTStream, 0, 0, 0, 0, 0)},
	{name: "RST_STREAM short", send: rawFrame(http2.FrameRSTStream, 0, 0, 0, 8)},
	{name: "RST_STREAM long", send: rawFrame(http2.FrameRSTStream, 0, 0, 0, 0, 8, 0)},
	{name: "SETTINGS", send: rawFrame(http2.FrameSettings, 0)},
	{name: "PUSH_PROMISE", send: rawFrame(http2.FramePushPromise, http2.FlagPushPromiseEndHeaders, 0, 0, 0, 4)},
	{name: "PING", send: rawFrame(http2.FramePing, 0, 0, 0, 0, 0, 0, 0, 0, 1)},
	{name: "GOAWAY", send: rawFrame(http2.FrameGoAway, 0, 0, 0, 0, 0, 0, 0, 0, 0)},
	{name: "WINDOW_UPDATE", send: func(c *client, id uint32) { c.window(id, 1) }},
	{name: "WINDOW_UPDATE zero", send: func(c *client, id uint32) { c.window(id, 0) }},
	{name: "WINDOW_UPDATE overflow", send: func(c *client, id uint32) { c.window(id, 1<<31-1) }},
	{name: "WINDOW_UPDATE short", send: rawFrame(http2.FrameWindowUpdate, 0, 0, 0, 1)},
	{name: "CONTINUATION", send: rawFrame(http2.FrameContinuation, http2.FlagContinuationEndHeaders)},
	{name: "unknown", send: rawFrame(0x42, 0xff, 1, 2, 3)},
}

// stateScripts combines each state with each frame, and then checks with a new request whether the
// connection works.
func stateScripts() (scripts []script) {
	for _, state := range states {
		for _, frame := range frames {
			scripts = append(scripts, script{strings.Join([]string{"state", state.name, frame.name}, "/"), func(c *client) {
				c.greet()
				c.request(1, "GET", "/hello", true)
				c.settle()
				state.enter(c)
				c.settle()
				frame.send(c, 3)
				c.settle()
				c.ping(1)
				c.request(7, "GET", "/hello", true)
				c.settle()
				c.release()
			}})
		}
	}
	return scripts
}
