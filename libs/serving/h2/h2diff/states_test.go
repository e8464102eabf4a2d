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
	{"idle", func(*client) {}},
	{"open, read", func(c *client) { c.request(3, "POST", "/read", false) }},
	{"open, counted", func(c *client) { c.request(3, "POST", "/read", false, "content-length: 5") }},
	{"open, unread", func(c *client) { c.request(3, "POST", "/wait", false) }},
	{"open, answer begun", func(c *client) { c.request(3, "POST", "/begun", false) }},
	{"half-closed by the client", func(c *client) { c.request(3, "GET", "/wait", true) }},
	{"half-closed, answer begun", func(c *client) { c.request(3, "GET", "/begun", true) }},
	{"half-closed, blocked by the window", func(c *client) { c.request(3, "GET", "/large?n=70000", true) }},
	{"closed by both ends", func(c *client) { c.request(3, "GET", "/hello", true) }},
	{"closed by the answer to an open request", func(c *client) { c.request(3, "POST", "/hello", false) }},
	{"closed by the client's reset", func(c *client) {
		c.request(3, "GET", "/wait", true)
		c.settle()
		c.reset(3, http2.ErrCodeCancel)
	}},
	{"closed by the client's reset of an open request", func(c *client) {
		c.request(3, "POST", "/read", false)
		c.settle()
		c.reset(3, http2.ErrCodeCancel)
	}},
	{"closed by the server's reset", func(c *client) {
		c.request(3, "POST", "/read", false)
		c.settle()
		c.window(3, 0)
	}},
	{"refused as malformed", func(c *client) { c.headers(3, false, ":method: GET") }},
	{"unused before a newer stream", func(c *client) { c.request(5, "GET", "/wait", true) }},
	{"in the middle of headers", func(c *client) {
		c.raw(http2.FrameHeaders, http2.FlagHeadersEndStream, 3, c.fields(":method: GET", ":scheme: http")...)
		c.ledger.open(3)
	}},
	{"after the server's GOAWAY", func(c *client) {
		c.request(3, "POST", "/read", false)
		c.settle()
		c.shutdown()
	}},
	{"idle after the server's GOAWAY", func(c *client) {
		c.shutdown()
	}},
	{"after the client's GOAWAY", func(c *client) {
		c.request(3, "POST", "/read", false)
		c.settle()
		c.must(c.framer.WriteGoAway(0, http2.ErrCodeNo, nil))
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
		c.raw(kind, http2.FlagHeadersPriority|http2.FlagHeadersEndHeaders, id, append(binary.BigEndian.AppendUint32(nil, id), 16)...)
	}
}

const padded = http2.FlagDataPadded

// frames are valid and invalid frames of each type.
var frames = []frame{
	{"DATA", rawFrame(http2.FrameData, 0, []byte("12345")...)},
	{"DATA END_STREAM", rawFrame(http2.FrameData, http2.FlagDataEndStream, []byte("12345")...)},
	{"DATA empty", rawFrame(http2.FrameData, 0)},
	{"DATA empty END_STREAM", rawFrame(http2.FrameData, http2.FlagDataEndStream)},
	{"DATA padded", rawFrame(http2.FrameData, padded|http2.FlagDataEndStream, append([]byte{3}, "12345\x00\x00\x00"...)...)},
	{"DATA padding only", rawFrame(http2.FrameData, padded, 2, 0, 0)},
	{"DATA padding as long as the frame", rawFrame(http2.FrameData, padded, 3, 0, 0)},
	{"DATA padded empty", rawFrame(http2.FrameData, padded)},
	{"HEADERS trailers", func(c *client, id uint32) { c.headers(id, true, "x-trailer: 1") }},
	{"HEADERS without END_STREAM", func(c *client, id uint32) { c.headers(id, false, "x-trailer: 1") }},
	{"HEADERS with pseudo-fields", func(c *client, id uint32) { c.headers(id, true, ":path: /", "x-trailer: 1") }},
	{"HEADERS with a connection field", func(c *client, id uint32) { c.headers(id, true, "connection: close") }},
	{"HEADERS of a request", func(c *client, id uint32) { c.request(id, "GET", "/hello", true) }},
	{"HEADERS padding as long as the frame", rawFrame(http2.FrameHeaders, http2.FlagHeadersPadded|http2.FlagHeadersEndHeaders, 3, 0, 0)},
	{"HEADERS priority too short", rawFrame(http2.FrameHeaders, http2.FlagHeadersPriority|http2.FlagHeadersEndHeaders, 0, 0, 0, 1)},
	{"HEADERS on itself", onItself(http2.FrameHeaders)},
	{"PRIORITY", rawFrame(http2.FramePriority, 0, 0, 0, 0, 1, 16)},
	{"PRIORITY short", rawFrame(http2.FramePriority, 0, 0, 0, 0, 1)},
	{"PRIORITY on itself", onItself(http2.FramePriority)},
	{"RST_STREAM", rawFrame(http2.FrameRSTStream, 0, 0, 0, 0, 8)},
	{"RST_STREAM NO_ERROR", rawFrame(http2.FrameRSTStream, 0, 0, 0, 0, 0)},
	{"RST_STREAM short", rawFrame(http2.FrameRSTStream, 0, 0, 0, 8)},
	{"RST_STREAM long", rawFrame(http2.FrameRSTStream, 0, 0, 0, 0, 8, 0)},
	{"SETTINGS", rawFrame(http2.FrameSettings, 0)},
	{"PUSH_PROMISE", rawFrame(http2.FramePushPromise, http2.FlagPushPromiseEndHeaders, 0, 0, 0, 4)},
	{"PING", rawFrame(http2.FramePing, 0, 0, 0, 0, 0, 0, 0, 0, 1)},
	{"GOAWAY", rawFrame(http2.FrameGoAway, 0, 0, 0, 0, 0, 0, 0, 0, 0)},
	{"WINDOW_UPDATE", func(c *client, id uint32) { c.window(id, 1) }},
	{"WINDOW_UPDATE zero", func(c *client, id uint32) { c.window(id, 0) }},
	{"WINDOW_UPDATE overflow", func(c *client, id uint32) { c.window(id, 1<<31-1) }},
	{"WINDOW_UPDATE short", rawFrame(http2.FrameWindowUpdate, 0, 0, 0, 1)},
	{"CONTINUATION", rawFrame(http2.FrameContinuation, http2.FlagContinuationEndHeaders)},
	{"unknown", rawFrame(0x42, 0xff, 1, 2, 3)},
}

// stateScripts combines each state with each frame, and then checks with a new request whether the
// connection works.
func stateScripts() (scripts []script) {
	for _, s := range states {
		for _, f := range frames {
			scripts = append(scripts, script{strings.Join([]string{"state", s.name, f.name}, "/"), func(c *client) {
				c.greet()
				c.request(1, "GET", "/hello", true)
				c.settle()
				s.enter(c)
				c.settle()
				f.send(c, 3)
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
