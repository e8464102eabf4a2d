package h2_test

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"binnacle/libs/serving/h2"
)

// raw sends a frame as it is.
func (c *unread) raw(kind http2.FrameType, flags http2.Flags, id uint32, payload string) {
	c.t.Helper()
	c.must(c.WriteRawFrame(kind, flags, id, []byte(payload)))
}

// setting is one as it is sent.
func setting(id http2.SettingID, value uint32) string {
	return string(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(nil, uint16(id)), value))
}

const (
	aList  = "\x83\x87\x84\x41\x01a" // POST https / a
	aField = "\x40\x01x\x01y"

	onItself, onNothing = "\x00\x00\x00\x01\x00", "\x00\x00\x00\x00\x00"
)

// outcome is what becomes of frames, of a connection whose first stream is open.
type outcome struct {
	send func(c *unread)
	want string
}

// one sends a frame.
func one(kind http2.FrameType, flags http2.Flags, id uint32, payload, want string) outcome {
	return outcome{func(c *unread) { c.raw(kind, flags, id, payload) }, want}
}

const (
	protocol, size, flow = "away PROTOCOL_ERROR", "away FRAME_SIZE_ERROR", "away FLOW_CONTROL_ERROR"

	stays = "ping 77"
)

// become has frames sent, of which what is wanted becomes.
func become(t *testing.T, all map[string]outcome) {
	for name, o := range all {
		t.Run(name, func(t *testing.T) {
			c := dialUnread(t, func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/" {
					<-r.Context().Done()
				}
			})
			c.raw(http2.FrameHeaders, endsHeaders, 1, aList)
			o.send(c)
			switch {
			case strings.HasPrefix(o.want, "away"):
				if got := c.hears(); got != o.want {
					t.Errorf("the client hears %s, want %s", got, o.want)
				}
				return
			case o.want != stays:
				if got := c.hears(); got != o.want {
					t.Errorf("the client hears %s, want %s", got, o.want)
				}
			}
			c.lives()
		})
	}
}

// TestFramesOfHeaders: what is wrong with them ends the connection, as nobody knows what follows, or
// the stream.
func TestFramesOfHeaders(t *testing.T) {
	const headers, more = http2.FrameHeaders, http2.FrameContinuation
	become(t, map[string]outcome{
		"of no stream":              one(headers, endsHeaders, 0, aList, protocol),
		"of the server's":           one(headers, endsHeaders, 4, aList, protocol),
		"too much padding":          one(headers, endsHeaders|padded, 3, "\x07"+aList, protocol),
		"padding without length":    one(headers, endsHeaders|padded, 3, "", protocol),
		"a priority that is short":  one(headers, endsHeaders|withOrder, 3, "\x00\x00\x00\x00", size),
		"on itself":                 one(headers, endsHeaders|withOrder, 1, onItself, "reset 1 PROTOCOL_ERROR"),
		"all padding":               {func(c *unread) { c.raw(headers, endsHeaders|padded|endsStream, 1, "\x05"+aField+"12345"); c.lives() }, stays},
		"a priority":                {func(c *unread) { c.raw(headers, endsHeaders|withOrder, 3, onNothing+aList) }, stays},
		"a table of nothing":        one(headers, endsHeaders, 3, "\x20\x87\x83\x84\x41\x01a", stays),
		"a new one on itself":       one(headers, endsHeaders|withOrder, 3, "\x00\x00\x00\x03\x00"+aList, "reset 3 PROTOCOL_ERROR"),
		"a continuation of nothing": one(more, endsHeaders, 1, aField, protocol),
		"of another stream":         {func(c *unread) { c.raw(headers, 0, 3, aList); c.raw(more, endsHeaders, 1, aField) }, protocol},
		"something else between":    {func(c *unread) { c.raw(headers, 0, 3, aList); c.raw(http2.FramePing, 0, 0, "12345678") }, protocol},
		"data between":              {func(c *unread) { c.raw(headers, 0, 3, aList); c.raw(http2.FrameData, 0, 3, "x") }, protocol},
		"another list between":      {func(c *unread) { c.raw(headers, 0, 3, aList); c.raw(headers, endsHeaders, 3, aList) }, protocol},
		"backwards":                 {func(c *unread) { c.raw(headers, endsHeaders, 5, aList); c.raw(headers, endsHeaders, 3, aList) }, protocol},
		"of one that is closed": {func(c *unread) {
			c.raw(headers, endsHeaders|endsStream, 3, "\x83\x87\x44\x02/x\x41\x01a")
			if got := c.hears(); got != "200" {
				c.t.Errorf("it is answered %s", got)
			}
			c.raw(headers, endsHeaders, 3, aList)
		}, "away STREAM_CLOSED"},
		"after the client left": {func(c *unread) {
			c.raw(http2.FrameGoAway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x00")
			if got := c.hears(); got != "away NO_ERROR" {
				c.t.Errorf("it hears %s", got)
			}
			c.raw(headers, endsHeaders, 3, aList)
			c.raw(http2.FrameData, 0, 3, "x")
			c.raw(http2.FrameWindowUpdate, 0, 3, "\x00\x00\x00\x01")
			c.raw(http2.FrameRSTStream, 0, 3, "1234")
		}, stays},
		"then of the server's": {func(c *unread) { c.raw(headers, endsHeaders, 3, aList); c.raw(http2.FrameRSTStream, 0, 2, "1234") }, protocol},
		"many bytes": {func(c *unread) {
			c.raw(headers, 0, 3, aList)
			field := "\x00\x01x\x7f\x81\x7c" + strings.Repeat("v", 16_000)
			for range 8 {
				c.raw(more, 0, 3, field+"\x00\x01x\x01y")
			}
			c.raw(more, 0, 3, field)
		}, "away ENHANCE_YOUR_CALM"},
	})
}

// TestFramesThatBreakTheRules, and those that do not.
func TestFramesThatBreakTheRules(t *testing.T) {
	const order, reset, settings, push, ping, away, window = http2.FramePriority, http2.FrameRSTStream, http2.FrameSettings, http2.FramePushPromise, http2.FramePing, http2.FrameGoAway, http2.FrameWindowUpdate
	const eight = "12345678"
	become(t, map[string]outcome{
		"too large":                  one(ping, 0, 0, strings.Repeat("x", 16<<10+1), size),
		"of another kind":            one(99, 0, 0, "what", stays),
		"as large as any":            one(99, 0, 0, strings.Repeat("x", 16<<10), stays),
		"a priority of no stream":    one(order, 0, 0, onNothing, protocol),
		"a priority of another size": one(order, 0, 1, "1234", "reset 1 FRAME_SIZE_ERROR"),
		"a priority on itself":       one(order, 0, 1, onItself, "reset 1 PROTOCOL_ERROR"),
		"a priority":                 one(order, 0, 1, onNothing, stays),
		"a reset of another size":    one(reset, 0, 1, "12345", size),
		"a reset of no stream":       one(reset, 0, 0, "1234", protocol),
		"a reset of an idle stream":  one(reset, 0, 3, "1234", protocol),
		"a reset of the server's":    one(reset, 0, 2, "1234", protocol),
		"settings of a stream":       one(settings, 0, 1, "", protocol),
		"settings of another size":   one(settings, 0, 0, "12345", size),
		"an answer with settings":    one(settings, http2.FlagSettingsAck, 0, setting(http2.SettingEnablePush, 0), size),
		"an answer":                  one(settings, http2.FlagSettingsAck, 0, "", stays),
		"many settings":              one(settings, 0, 0, strings.Repeat(setting(99, 1), 101), protocol),
		"not so many":                one(settings, 0, 0, strings.Repeat(setting(99, 1), 100), stays),
		"a setting of no such value": one(settings, 0, 0, setting(http2.SettingEnablePush, 2), protocol),
		"a window of no such size":   one(settings, 0, 0, setting(http2.SettingInitialWindowSize, 1<<31), flow),
		"a push":                     one(push, endsHeaders, 1, "\x00\x00\x00\x02"+aList, protocol),
		"a ping of a stream":         one(ping, 0, 1, eight, protocol),
		"a ping of another size":     one(ping, 0, 0, "1234567", size),
		"a sign of life":             one(ping, http2.FlagPingAck, 0, eight, stays),
		"leaving a stream":           one(away, 0, 1, eight, protocol),
		"a window of another size":   one(window, 0, 0, "123", size),
		"nothing more":               one(window, 0, 0, "\x00\x00\x00\x00", protocol),
		"nothing more of a stream":   one(window, 0, 1, "\x00\x00\x00\x00", "reset 1 PROTOCOL_ERROR"),
		"a window of an idle stream": one(window, 0, 3, "\x00\x00\x00\x01", protocol),
		"a window of the server's":   one(window, 0, 2, "\x00\x00\x00\x01", protocol),
		"too much":                   one(window, 0, 0, "\x7f\xff\xff\xff", flow),
		"too much of a stream":       one(window, 0, 1, "\x7f\xff\xff\xff", "reset 1 FLOW_CONTROL_ERROR"),
		"as much as there may be":    one(window, 0, 0, "\x7f\xff\x00\x00", stays),
		"as much of a stream":        one(window, 0, 1, "\x7f\xff\x00\x00", stays),
		"a first window that adds up": {func(c *unread) {
			c.raw(window, 0, 1, "\x7f\xff\x00\x00")
			c.raw(settings, 0, 0, setting(http2.SettingInitialWindowSize, 65536))
		}, flow},
		"data of no stream":            one(http2.FrameData, 0, 0, "x", protocol),
		"data of an idle stream":       one(http2.FrameData, 0, 3, "x", protocol),
		"data of the server's":         one(http2.FrameData, 0, 2, "x", protocol),
		"padded data without a length": one(http2.FrameData, http2.FlagDataPadded, 1, "", size),
		"data with too much padding":   one(http2.FrameData, http2.FlagDataPadded, 1, "\x02x", protocol),
		"data that are all padding":    one(http2.FrameData, http2.FlagDataPadded, 1, "\x01x", stays),
	})
}

// TestMoreDataThanThereIsRoom for, of a stream, and of a connection.
func TestMoreDataThanThereIsRoom(t *testing.T) {
	part := strings.Repeat("x", 16<<10)
	become(t, map[string]outcome{
		"of a stream": {func(c *unread) {
			for range 4 {
				c.raw(http2.FrameData, 0, 1, part)
			}
		}, "reset 1 FLOW_CONTROL_ERROR"},
		"not yet": {func(c *unread) {
			for range 3 {
				c.raw(http2.FrameData, 0, 1, part)
			}
			c.raw(http2.FrameData, 0, 1, part[:len(part)-1])
		}, stays},
	})
	begun := make(chan struct{}, 17)
	c := dialUnread(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadFull(r.Body, make([]byte, 1)) // from now on more may be sent
		begun <- struct{}{}
		<-r.Context().Done()
	})
	heard := make(chan string, 1)
	go func() {
		for {
			f, err := c.ReadFrame()
			if err != nil {
				heard <- err.Error()
				return
			}
			if f, ok := f.(*http2.GoAwayFrame); ok {
				heard <- f.ErrCode.String()
				return
			}
		}
	}()
	for range 16 {
		c.ask(c.id+1, 0, asking())
		c.id += 2
		c.raw(http2.FrameData, 0, c.id-1, "x")
		<-begun
		for n := 1; n < 1<<20; n += len(part) {
			c.raw(http2.FrameData, 0, c.id-1, part[:min(len(part), 1<<20-n)])
		}
	}
	c.ask(c.id+1, 0, asking())
	c.raw(http2.FrameData, 0, c.id+1, "x")
	if got := <-heard; got != "FLOW_CONTROL_ERROR" {
		t.Errorf("the client hears %s", got)
	}
}

// TestTooManyStreams are refused, one by one.
func TestTooManyStreams(t *testing.T) {
	c := dialUnread(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for range config().MaxStreams {
		c.post("/", true)
	}
	c.lives()
	c.post("/", true)
	if got := c.hears(); got != "reset 201 REFUSED_STREAM" {
		t.Errorf("the client hears %s", got)
	}
	c.must(c.WriteRSTStream(1, http2.ErrCodeCancel))
	c.post("/", true)
	c.lives()
}

// TestHowConnectionsBegin: with the preface and settings, through a cipher that may be used.
func TestHowConnectionsBegin(t *testing.T) {
	const preface = http2.ClientPreface
	settings := "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	suite := func(version, suite uint16) tls.ConnectionState {
		return tls.ConnectionState{Version: version, CipherSuite: suite}
	}
	good := suite(tls.VersionTLS13, tls.TLS_AES_128_GCM_SHA256)
	for name, o := range map[string]struct {
		text  string
		state tls.ConnectionState
		want  string
	}{
		"well":              {preface + settings, good, ""},
		"another preface":   {strings.ToLower(preface) + settings, good, protocol},
		"another frame":     {preface + "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678", good, protocol},
		"an answer":         {preface + "\x00\x00\x00\x04\x01\x00\x00\x00\x00", good, protocol},
		"an older one":      {preface + settings, suite(tls.VersionTLS12, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256), ""},
		"too old a version": {preface + settings, suite(tls.VersionTLS11, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256), "away INADEQUATE_SECURITY"},
		"a cipher too old":  {preface + settings, suite(tls.VersionTLS12, tls.TLS_RSA_WITH_AES_128_GCM_SHA256), "away INADEQUATE_SECURITY"},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := net.Pipe()
			over := make(chan struct{})
			go func() {
				defer close(over)
				h2.NewServer(config()).ServeConn(t.Context(), stated{newPlain(server), o.state}, http.NotFoundHandler())
			}()
			sent := make(chan error, 1)
			go func() {
				_, err := io.WriteString(client, o.text)
				sent <- err
			}()
			c := &unread{Framer: http2.NewFramer(client, client), Conn: client, t: t}
			if o.want == "" {
				c.must(<-sent)
				c.lives()
			} else if got := c.hears(); got != o.want {
				t.Errorf("the client hears %s, want %s", got, o.want)
			}
			_ = client.Close()
			<-over
		})
	}
}

// stated is a connection of some state.
type stated struct {
	plain
	state tls.ConnectionState
}

func (s stated) ConnectionState() tls.ConnectionState { return s.state }
