package h2diff_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"golang.org/x/net/http2"
)

// probe shows whether the connection still works.
func (c *client) probe(id uint32) {
	c.settle()
	c.ping(uint64(id))
	c.request(id, "GET", "/hello", true)
	c.settle()
}

// connectionScripts have connection frames, frames of each size, and connection prefaces.
func connectionScripts() (scripts []script) {
	add := func(name string, run func(*client)) {
		scripts = append(scripts, script{"connection/" + name, run})
	}
	addGreeted := func(name string, run func(*client)) {
		add(name, func(c *client) {
			c.greet()
			run(c)
			c.probe(99)
		})
	}
	for kind := http2.FrameType(0); kind <= 0x0a; kind++ {
		for _, size := range []int{0, 1, 3, 4, 5, 6, 7, 8, 9} {
			addGreeted(fmt.Sprintf("%v of %d bytes on stream 0", kind, size), func(c *client) {
				c.raw(kind, 0, 0, make([]byte, size)...)
			})
		}
		addGreeted(fmt.Sprintf("%v larger than a frame may be", kind), func(c *client) {
			c.request(1, "POST", "/wait", false)
			c.raw(kind, 0, 1, make([]byte, 16<<10+1)...)
		})
	}
	addGreeted("PING ack that nothing asked for", func(c *client) {
		c.raw(http2.FramePing, http2.FlagPingAck, 0, make([]byte, 8)...)
	})
	addGreeted("SETTINGS ack that nothing asked for", func(c *client) { c.raw(http2.FrameSettings, http2.FlagSettingsAck, 0) })
	addGreeted("SETTINGS ack with a setting", func(c *client) {
		c.raw(http2.FrameSettings, http2.FlagSettingsAck, 0, make([]byte, 6)...)
	})
	addGreeted("GOAWAY with debug data", func(c *client) { c.requireNoError(c.framer.WriteGoAway(0, http2.ErrCodeNo, []byte("debug"))) })
	addGreeted("GOAWAY with an error", func(c *client) { c.requireNoError(c.framer.WriteGoAway(0, http2.ErrCodeInternal, nil)) })
	addGreeted("window of the connection overflows", func(c *client) { c.window(0, 1<<31-1) })
	addGreeted("window of the connection at its limit", func(c *client) { c.window(0, 1<<31-1-defaultWindow) })
	addGreeted("hundred pings", func(c *client) {
		for i := range uint64(100) {
			c.ping(i)
		}
	})
	for id, values := range map[http2.SettingID][]uint32{
		http2.SettingHeaderTableSize:      {0, 1, 4096, 1 << 31},
		http2.SettingEnablePush:           {0, 1, 2},
		http2.SettingMaxConcurrentStreams: {0, 1, 1<<32 - 1},
		http2.SettingInitialWindowSize:    {0, 1<<31 - 1, 1 << 31},
		http2.SettingMaxFrameSize:         {0, 1<<14 - 1, 1 << 14, 1<<24 - 1, 1 << 24},
		http2.SettingMaxHeaderListSize:    {0, 1 << 20},
		8:                                 {0, 1, 2}, // ENABLE_CONNECT_PROTOCOL
		0x99:                              {7},
	} {
		for _, value := range values {
			setting := http2.Setting{ID: id, Val: value}
			addGreeted(fmt.Sprintf("later %v", setting), func(c *client) { c.settings(setting) })
			add(fmt.Sprintf("first %v", setting), func(c *client) {
				c.greet(setting)
				c.probe(1)
			})
		}
	}
	addGreeted("the same setting twice", func(c *client) {
		c.settings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}, http2.Setting{
			ID:  http2.SettingInitialWindowSize,
			Val: 3,
		})
	})
	for name, text := range map[string]string{
		"HTTP/1":    "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"garbage":   strings.Repeat("x", 24),
		"one wrong": strings.Replace(http2.ClientPreface, "SM", "SX", 1),
	} {
		if name == "HTTP/1" {
			continue // net/http may serve it
		}
		add("preface of "+name, func(c *client) { c.buffered.WriteString(text) })
	}
	add("preface without SETTINGS", func(c *client) {
		c.buffered.WriteString(http2.ClientPreface)
		c.ping(1)
		c.settle()
	})
	add("preface and SETTINGS ack", func(c *client) {
		c.buffered.WriteString(http2.ClientPreface)
		c.raw(http2.FrameSettings, http2.FlagSettingsAck, 0)
		c.settle()
	})
	add("preface and silence", func(c *client) {
		c.buffered.WriteString(http2.ClientPreface)
		c.advance(time.Minute)
	})
	addGreeted("idle until the timeout", func(c *client) {
		c.request(1, "GET", "/hello", true)
		c.advance(idleTimeout + time.Second)
	})
	addGreeted("not idle while a request waits", func(c *client) {
		c.request(1, "GET", "/begun", true)
		c.advance(writeTimeout / 2)
		c.release()
	})
	addGreeted("stream ids that skip", func(c *client) {
		c.request(3, "GET", "/hello", true)
		c.request(9, "GET", "/hello", true)
	})
	addGreeted("stream ids that go back", func(c *client) {
		c.request(9, "GET", "/hello", true)
		c.settle()
		c.request(3, "GET", "/hello", true)
	})
	addGreeted("an even stream id", func(c *client) { c.request(2, "GET", "/hello", true) })
	addGreeted("the reserved bit", func(c *client) {
		c.request(1, "POST", "/read", false)
		c.settle()
		frame := binary.BigEndian.AppendUint32([]byte{0, 0, 1, 0, 1}, 1|1<<31)
		c.buffered.Write(append(frame, 'x'))
	})
	for _, size := range []uint32{maxStreams, maxStreams + 1, 3 * maxStreams} {
		addGreeted(fmt.Sprintf("%d streams at once", size), func(c *client) {
			c.requireNoError(c.framer.WriteSettingsAck())
			for i := range size {
				c.request(2*i+1, "GET", "/wait", true)
			}
			c.release()
		})
		addGreeted(fmt.Sprintf("%d streams that are reset", size), func(c *client) {
			for i := range size {
				c.request(2*i+1, "GET", "/wait", true)
				c.settle()
				c.reset(2*i+1, http2.ErrCodeCancel)
			}
			c.release()
		})
	}
	return append(scripts, shutdownScripts()...)
}

// shutdownScripts shut down the server gracefully with requests in each state.
func shutdownScripts() (scripts []script) {
	for name, run := range map[string]func(*client){
		"idle": func(c *client) { c.shutdown() },
		"during reads": func(c *client) {
			c.request(1, "POST", "/read", false)
			c.settle()
			c.shutdown()
			c.settle()
			c.data(1, true, []byte("x"))
		},
		"during a response": func(c *client) {
			c.request(1, "GET", "/begun", true)
			c.settle()
			c.shutdown()
			c.release()
		},
		"during a response of an hour": func(c *client) {
			c.request(1, "GET", "/parts?parts=1&n=70000", true)
			c.settle()
			c.shutdown()
			c.advance(writeTimeout / 2)
			c.window(1, 10_000)
			c.window(0, 10_000)
		},
		"before a stream": func(c *client) {
			c.shutdown()
			c.settle()
			c.request(1, "GET", "/hello", true)
		},
		"by the response of a handler": func(c *client) { c.request(1, "GET", "/connection", true) },
		"by the response of one of two handlers": func(c *client) {
			c.request(1, "GET", "/wait", true)
			c.request(3, "GET", "/connection", true)
			c.settle()
			c.request(5, "GET", "/hello", true)
			c.release()
		},
		"twice": func(c *client) {
			c.request(1, "GET", "/wait", true)
			c.settle()
			c.shutdown()
			c.settle()
			c.shutdown()
			c.release()
		},
	} {
		scripts = append(scripts, script{"shutdown/" + name, func(c *client) {
			c.greet()
			run(c)
			c.settle()
		}})
	}
	return scripts
}
