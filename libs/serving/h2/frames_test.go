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

// writeFrame sends a frame.
func (c *rawClient) writeFrame(kind http2.FrameType, flags http2.Flags, id uint32, payload string) {
	c.t.Helper()
	c.requireNoError(c.WriteRawFrame(kind, flags, id, []byte(payload)))
}

// setting returns an encoded setting.
func setting(id http2.SettingID, value uint32) string {
	return string(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(nil, uint16(id)), value))
}

const (
	postBlock   = "\x83\x87\x84\x41\x01a" // POST https / a
	customField = "\x40\x01x\x01y"

	dependsOnItself, dependsOnNothing = "\x00\x00\x00\x01\x00", "\x00\x00\x00\x00\x00"
)

// frameOutcomes holds frames to send on a connection with an open stream, and the expected event.
type frameOutcomes struct {
	send func(c *rawClient)
	want string
}

// frameOutcome returns the outcome of one frame.
func frameOutcome(kind http2.FrameType, flags http2.Flags, id uint32, payload, want string) frameOutcomes {
	return frameOutcomes{func(c *rawClient) { c.writeFrame(kind, flags, id, payload) }, want}
}

const (
	goAwayProtocol, goAwayFrameSize, goAwayFlowControl = "away PROTOCOL_ERROR", "away FRAME_SIZE_ERROR", "away FLOW_CONTROL_ERROR"

	pingAck = "ping 77"
)

// testOutcomes sends the frames of each outcome and checks the event.
func testOutcomes(t *testing.T, all map[string]frameOutcomes) {
	for name, outcomes := range all {
		t.Run(name, func(t *testing.T) {
			rawClient := dialRaw(t, func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/" {
					<-r.Context().Done()
				}
			})
			rawClient.writeFrame(http2.FrameHeaders, endsHeaders, 1, postBlock)
			outcomes.send(rawClient)
			switch {
			case strings.HasPrefix(outcomes.want, "away"):
				if got := rawClient.readEvent(); got != outcomes.want {
					t.Errorf("got %s, want %s", got, outcomes.want)
				}
				return
			case outcomes.want != pingAck:
				if got := rawClient.readEvent(); got != outcomes.want {
					t.Errorf("got %s, want %s", got, outcomes.want)
				}
			}
			rawClient.ping()
		})
	}
}

// TestInvalidHeaderFramesEndStreamOrConnection checks which errors of HEADERS and CONTINUATION
// frames end the connection, and which the stream.
func TestInvalidHeaderFramesEndStreamOrConnection(t *testing.T) {
	const headers, more = http2.FrameHeaders, http2.FrameContinuation
	testOutcomes(t, map[string]frameOutcomes{
		"of no stream":             frameOutcome(headers, endsHeaders, 0, postBlock, goAwayProtocol),
		"of the server's":          frameOutcome(headers, endsHeaders, 4, postBlock, goAwayProtocol),
		"too much padding":         frameOutcome(headers, endsHeaders|padded, 3, "\x07"+postBlock, goAwayProtocol),
		"padding without length":   frameOutcome(headers, endsHeaders|padded, 3, "", goAwayProtocol),
		"a priority that is short": frameOutcome(headers, endsHeaders|withPriority, 3, "\x00\x00\x00\x00", goAwayFrameSize),
		"on itself":                frameOutcome(headers, endsHeaders|withPriority, 1, dependsOnItself, "reset 1 PROTOCOL_ERROR"),
		"all padding": {send: func(c *rawClient) {
			c.writeFrame(headers, endsHeaders|padded|endsStream, 1, "\x05"+customField+"12345")
			c.ping()
		}, want: pingAck},
		"a priority": {
			send: func(c *rawClient) { c.writeFrame(headers, endsHeaders|withPriority, 3, dependsOnNothing+postBlock) },
			want: pingAck,
		},
		"a table of nothing": frameOutcome(headers, endsHeaders, 3, "\x20\x87\x83\x84\x41\x01a", pingAck),
		"a new one on itself": frameOutcome(headers, endsHeaders|withPriority, 3,
			"\x00\x00\x00\x03\x00"+postBlock, "reset 3 PROTOCOL_ERROR"),
		"a continuation of nothing": frameOutcome(more, endsHeaders, 1, customField, goAwayProtocol),
		"of another stream": {send: func(c *rawClient) {
			c.writeFrame(headers, 0, 3, postBlock)
			c.writeFrame(more, endsHeaders, 1, customField)
		}, want: goAwayProtocol},
		"something else between": {send: func(c *rawClient) {
			c.writeFrame(headers, 0, 3, postBlock)
			c.writeFrame(http2.FramePing, 0, 0, "12345678")
		}, want: goAwayProtocol},
		"data between": {
			send: func(c *rawClient) { c.writeFrame(headers, 0, 3, postBlock); c.writeFrame(http2.FrameData, 0, 3, "x") },
			want: goAwayProtocol,
		},
		"another list between": {send: func(c *rawClient) {
			c.writeFrame(headers, 0, 3, postBlock)
			c.writeFrame(headers, endsHeaders, 3, postBlock)
		}, want: goAwayProtocol},
		"backwards": {send: func(c *rawClient) {
			c.writeFrame(headers, endsHeaders, 5, postBlock)
			c.writeFrame(headers, endsHeaders, 3, postBlock)
		}, want: goAwayProtocol},
		"of one that is closed": {send: func(c *rawClient) {
			c.writeFrame(headers, endsHeaders|endsStream, 3, "\x83\x87\x44\x02/x\x41\x01a")
			if got := c.readEvent(); got != "200" {
				c.t.Errorf("response = %s, want \"200\"", got)
			}
			c.writeFrame(headers, endsHeaders, 3, postBlock)
		}, want: "away STREAM_CLOSED"},
		"after the client left": {send: func(c *rawClient) {
			c.writeFrame(http2.FrameGoAway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x00")
			if got := c.readEvent(); got != "away NO_ERROR" {
				c.t.Errorf("got %s, want \"away NO_ERROR\"", got)
			}
			c.writeFrame(headers, endsHeaders, 3, postBlock)
			c.writeFrame(http2.FrameData, 0, 3, "x")
			c.writeFrame(http2.FrameWindowUpdate, 0, 3, "\x00\x00\x00\x01")
			c.writeFrame(http2.FrameRSTStream, 0, 3, "1234")
		}, want: pingAck},
		"then of the server's": {send: func(c *rawClient) {
			c.writeFrame(headers, endsHeaders, 3, postBlock)
			c.writeFrame(http2.FrameRSTStream, 0, 2, "1234")
		}, want: goAwayProtocol},
		"many bytes": {send: func(c *rawClient) {
			c.writeFrame(headers, 0, 3, postBlock)
			field := "\x00\x01x\x7f\x81\x7c" + strings.Repeat("v", 16_000)
			for range 8 {
				c.writeFrame(more, 0, 3, field+"\x00\x01x\x01y")
			}
			c.writeFrame(more, 0, 3, field)
		}, want: "away ENHANCE_YOUR_CALM"},
	})
}

// TestInvalidFramesEndStreamOrConnection checks errors and limits of all other frame types.
func TestInvalidFramesEndStreamOrConnection(t *testing.T) {
	const order, reset, settings, push, ping, away, window = http2.FramePriority, http2.FrameRSTStream, http2.FrameSettings, http2.FramePushPromise, http2.FramePing, http2.FrameGoAway, http2.FrameWindowUpdate
	const eight = "12345678"
	testOutcomes(t, map[string]frameOutcomes{
		"too large":                  frameOutcome(ping, 0, 0, strings.Repeat("x", 16<<10+1), goAwayFrameSize),
		"of another kind":            frameOutcome(99, 0, 0, "what", pingAck),
		"as large as any":            frameOutcome(99, 0, 0, strings.Repeat("x", 16<<10), pingAck),
		"a priority of no stream":    frameOutcome(order, 0, 0, dependsOnNothing, goAwayProtocol),
		"a priority of another size": frameOutcome(order, 0, 1, "1234", "reset 1 FRAME_SIZE_ERROR"),
		"a priority on itself":       frameOutcome(order, 0, 1, dependsOnItself, "reset 1 PROTOCOL_ERROR"),
		"a priority":                 frameOutcome(order, 0, 1, dependsOnNothing, pingAck),
		"a reset of another size":    frameOutcome(reset, 0, 1, "12345", goAwayFrameSize),
		"a reset of no stream":       frameOutcome(reset, 0, 0, "1234", goAwayProtocol),
		"a reset of an idle stream":  frameOutcome(reset, 0, 3, "1234", goAwayProtocol),
		"a reset of the server's":    frameOutcome(reset, 0, 2, "1234", goAwayProtocol),
		"settings of a stream":       frameOutcome(settings, 0, 1, "", goAwayProtocol),
		"settings of another size":   frameOutcome(settings, 0, 0, "12345", goAwayFrameSize),
		"a response with settings": frameOutcome(settings, http2.FlagSettingsAck, 0,
			setting(http2.SettingEnablePush, 0), goAwayFrameSize),
		"a response":                 frameOutcome(settings, http2.FlagSettingsAck, 0, "", pingAck),
		"many settings":              frameOutcome(settings, 0, 0, strings.Repeat(setting(99, 1), 101), goAwayProtocol),
		"below the limit":            frameOutcome(settings, 0, 0, strings.Repeat(setting(99, 1), 100), pingAck),
		"a setting of no such value": frameOutcome(settings, 0, 0, setting(http2.SettingEnablePush, 2), goAwayProtocol),
		"a window of no such size": frameOutcome(settings, 0, 0, setting(http2.SettingInitialWindowSize, 1<<31),
			goAwayFlowControl),
		"a push":                     frameOutcome(push, endsHeaders, 1, "\x00\x00\x00\x02"+postBlock, goAwayProtocol),
		"a ping of a stream":         frameOutcome(ping, 0, 1, eight, goAwayProtocol),
		"a ping of another size":     frameOutcome(ping, 0, 0, "1234567", goAwayFrameSize),
		"a sign of life":             frameOutcome(ping, http2.FlagPingAck, 0, eight, pingAck),
		"GOAWAY on a stream":         frameOutcome(away, 0, 1, eight, goAwayProtocol),
		"a window of another size":   frameOutcome(window, 0, 0, "123", goAwayFrameSize),
		"nothing more":               frameOutcome(window, 0, 0, "\x00\x00\x00\x00", goAwayProtocol),
		"nothing more of a stream":   frameOutcome(window, 0, 1, "\x00\x00\x00\x00", "reset 1 PROTOCOL_ERROR"),
		"a window of an idle stream": frameOutcome(window, 0, 3, "\x00\x00\x00\x01", goAwayProtocol),
		"a window of the server's":   frameOutcome(window, 0, 2, "\x00\x00\x00\x01", goAwayProtocol),
		"too much":                   frameOutcome(window, 0, 0, "\x7f\xff\xff\xff", goAwayFlowControl),
		"too much of a stream":       frameOutcome(window, 0, 1, "\x7f\xff\xff\xff", "reset 1 FLOW_CONTROL_ERROR"),
		"as much as there may be":    frameOutcome(window, 0, 0, "\x7f\xff\x00\x00", pingAck),
		"as much of a stream":        frameOutcome(window, 0, 1, "\x7f\xff\x00\x00", pingAck),
		"a first window that adds up": {send: func(c *rawClient) {
			c.writeFrame(window, 0, 1, "\x7f\xff\x00\x00")
			c.writeFrame(settings, 0, 0, setting(http2.SettingInitialWindowSize, 65536))
		}, want: goAwayFlowControl},
		"data of no stream":            frameOutcome(http2.FrameData, 0, 0, "x", goAwayProtocol),
		"data of an idle stream":       frameOutcome(http2.FrameData, 0, 3, "x", goAwayProtocol),
		"data of the server's":         frameOutcome(http2.FrameData, 0, 2, "x", goAwayProtocol),
		"padded data without a length": frameOutcome(http2.FrameData, http2.FlagDataPadded, 1, "", goAwayFrameSize),
		"data with too much padding":   frameOutcome(http2.FrameData, http2.FlagDataPadded, 1, "\x02x", goAwayProtocol),
		"data that are all padding":    frameOutcome(http2.FrameData, http2.FlagDataPadded, 1, "\x01x", pingAck),
	})
}

// TestDataBeyondWindowEndsConnection checks DATA that exceeds the window of a stream and of the
// connection.
func TestDataBeyondWindowEndsConnection(t *testing.T) {
	chunk := strings.Repeat("x", 16<<10)
	testOutcomes(t, map[string]frameOutcomes{
		"of a stream": {send: func(client *rawClient) {
			for range 4 {
				client.writeFrame(http2.FrameData, 0, 1, chunk)
			}
		}, want: "reset 1 FLOW_CONTROL_ERROR"},
		"not yet": {send: func(client *rawClient) {
			for range 3 {
				client.writeFrame(http2.FrameData, 0, 1, chunk)
			}
			client.writeFrame(http2.FrameData, 0, 1, chunk[:len(chunk)-1])
		}, want: pingAck},
	})
	// The handler reads as many bytes as the window has, twice, so that the window grows to its maximum.
	opened := []int{65535, 3*65535 - 1}
	started := make(chan struct{})
	client := dialRaw(t, func(_ http.ResponseWriter, r *http.Request) {
		for _, size := range opened {
			for _, n := range []int{size, 1} { // reading on opens the window
				_, _ = io.ReadFull(r.Body, make([]byte, n))
				started <- struct{}{}
			}
		}
		<-r.Context().Done()
	})
	heard := make(chan string, 1)
	go func() {
		for {
			frame, err := client.ReadFrame()
			if err != nil {
				heard <- err.Error()
				return
			}
			if f, ok := frame.(*http2.GoAwayFrame); ok {
				heard <- f.ErrCode.String()
				return
			}
		}
	}()
	send := func(id uint32, size int) {
		for n := 0; n < size; n += len(chunk) {
			client.writeFrame(http2.FrameData, 0, id, chunk[:min(len(chunk), size-n)])
		}
	}
	const streams, unread = 22, 768 << 10 // together more than the window of the connection
	first := client.id + 1
	for range streams {
		client.sendHeaders(client.id+1, 0, getFields())
		client.id += 2
		for _, size := range opened {
			send(client.id-1, size)
			<-started
			send(client.id-1, 1)
			<-started
		}
	}
	for i := range streams {
		send(first+uint32(2*i), unread)
	}
	if got := <-heard; got != "FLOW_CONTROL_ERROR" {
		t.Errorf("got %s, want FLOW_CONTROL_ERROR", got)
	}
}

// TestTooManyStreamsAreRejected checks that streams beyond the limit are rejected one by one.
func TestTooManyStreamsAreRejected(t *testing.T) {
	rawClient := dialRaw(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for range config().MaxStreams {
		rawClient.openPost("/", true)
	}
	rawClient.ping()
	rawClient.openPost("/", true)
	if got := rawClient.readEvent(); got != "reset 201 REFUSED_STREAM" {
		t.Errorf("got %s, want a refused stream", got)
	}
	rawClient.requireNoError(rawClient.WriteRSTStream(1, http2.ErrCodeCancel))
	rawClient.openPost("/", true)
	rawClient.ping()
}

// TestInvalidPrefaceEndsConnection checks the client preface, the first frame and the TLS state.
func TestInvalidPrefaceEndsConnection(t *testing.T) {
	const preface = http2.ClientPreface
	settings := "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	suite := func(version, suite uint16) tls.ConnectionState {
		return tls.ConnectionState{Version: version, CipherSuite: suite}
	}
	validPreface := suite(tls.VersionTLS13, tls.TLS_AES_128_GCM_SHA256)
	for name, test := range map[string]struct {
		text  string
		state tls.ConnectionState
		want  string
	}{
		"well":            {text: preface + settings, state: validPreface, want: ""},
		"another preface": {text: strings.ToLower(preface) + settings, state: validPreface, want: goAwayProtocol},
		"another frame":   {text: preface + "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678", state: validPreface, want: goAwayProtocol},
		"a response":      {text: preface + "\x00\x00\x00\x04\x01\x00\x00\x00\x00", state: validPreface, want: goAwayProtocol},
		"an older one": {
			text:  preface + settings,
			state: suite(tls.VersionTLS12, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
			want:  "",
		},
		"too old a version": {
			text:  preface + settings,
			state: suite(tls.VersionTLS11, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
			want:  "away INADEQUATE_SECURITY",
		},
		"a cipher too old": {
			text:  preface + settings,
			state: suite(tls.VersionTLS12, tls.TLS_RSA_WITH_AES_128_GCM_SHA256),
			want:  "away INADEQUATE_SECURITY",
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := net.Pipe()
			over := make(chan struct{})
			go func() {
				defer close(over)
				h2.NewServer(config()).ServeConn(t.Context(), stateWire{newFakeWire(server), test.state}, http.NotFoundHandler())
			}()
			sent := make(chan error, 1)
			go func() {
				_, err := io.WriteString(client, test.text)
				sent <- err
			}()
			c := &rawClient{Framer: http2.NewFramer(client, client), Conn: client, t: t}
			if test.want == "" {
				c.requireNoError(<-sent)
				c.ping()
			} else if got := c.readEvent(); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			_ = client.Close()
			<-over
		})
	}
}

// stateWire is a wire with a given TLS state.
type stateWire struct {
	fakeWire
	state tls.ConnectionState
}

func (s stateWire) ConnectionState() tls.ConnectionState { return s.state }
