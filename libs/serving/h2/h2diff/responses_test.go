package h2diff_test

import (
	"fmt"
	"time"

	"golang.org/x/net/http2"
)

// responsePaths are handler paths that cover each form of a response.
var responsePaths = []string{
	"/empty", "/hello", "/flush", "/twice", "/panic", "/panicked", "/connection", "/fields", "/hints", "/continue",
	"/status?code=200", "/status?code=204", "/status?code=205", "/status?code=304", "/status?code=404",
	"/status?code=599", "/status?code=999",
	"/declared?length=10&n=10", "/declared?length=10&n=4", "/declared?length=10&n=11", "/declared?length=0&n=0",
	"/declared?length=0&n=1",
	"/declared?length=x&n=3", "/declared?length=-1&n=3", "/declared?length=20000&n=20000", "/declared?length=20000&n=0",
	"/large?n=1", "/large?n=2048", "/large?n=2049", "/large?n=4096", "/large?n=4097", "/large?n=16384",
	"/large?n=16385", "/large?n=65535",
	"/parts?parts=1&n=10", "/parts?parts=3&n=0", "/parts?parts=4&n=5000", "/parts?parts=3&n=20000",
	"/trailers?n=0", "/trailers?n=4", "/trailers?n=5000", "/trailers?n=20000",
}

// responseScripts request each form of a response with each method.
func responseScripts() (scripts []script) {
	for _, path := range responsePaths {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			scripts = append(scripts, script{"response/" + method + " " + path, func(c *client) {
				c.greet()
				c.request(1, method, path, method != "POST")
				c.settle()
				if method == "POST" {
					c.data(1, true, []byte("body"))
				}
				c.probe(3)
			}})
		}
	}
	return append(scripts, windowScripts()...)
}

// windowScripts have responses and bodies that wait for windows.
func windowScripts() (scripts []script) {
	add := func(name string, run func(*client)) {
		scripts = append(scripts, script{"window/" + name, func(c *client) {
			run(c)
			c.settle()
			c.probe(99)
		}})
	}
	initial := func(n uint32) http2.Setting { return http2.Setting{ID: http2.SettingInitialWindowSize, Val: n} }
	for _, first := range []uint32{0, 1, 10, 16384, 100_000} {
		for _, path := range []string{"/hello", "/large?n=30000", "/large?n=100000", "/parts?parts=3&n=20",
			"/trailers?n=100", "/panicked"} {
			for _, more := range []uint32{1, 7, 20_000} {
				add(fmt.Sprintf("initial %d, %s, then %d", first, path, more), func(c *client) {
					c.greet(initial(first))
					c.request(1, "GET", path, true)
					for range 3 {
						c.settle()
						c.window(1, more)
					}
					c.settle()
					c.window(0, 50_000)
					c.settle()
					c.window(1, 100_000)
				})
			}
		}
	}
	add("lowered below what is sent", func(c *client) {
		c.greet(initial(100))
		c.request(1, "GET", "/large?n=1000", true)
		c.settle()
		c.settings(initial(10))
		c.settle()
		c.window(1, 50)
		c.settle()
		c.window(1, 41)
		c.settle()
		c.settings(initial(200))
		c.settle()
		c.window(1, 1000)
	})
	add("raised so that one overflows", func(c *client) {
		c.greet(initial(100))
		c.request(1, "GET", "/begun", true)
		c.settle()
		c.window(1, 1<<31-1-100)
		c.settle()
		c.settings(initial(106))
	})
	add("two streams share that of the connection", func(c *client) {
		c.greet(initial(1 << 20))
		c.request(1, "GET", "/large?n=60000", true)
		c.settle()
		c.request(3, "GET", "/large?n=60000", true)
		c.settle()
		c.window(0, 10_000)
		c.settle()
		c.window(0, 100_000)
	})
	add("reset while it is used up", func(c *client) {
		c.greet(initial(10))
		c.request(1, "GET", "/large?n=30000", true)
		c.settle()
		c.reset(1, http2.ErrCodeCancel)
	})
	for _, method := range []string{"GET", "HEAD"} {
		add("write deadline of a response to "+method, func(c *client) {
			c.greet(initial(10))
			c.request(1, method, "/deadline?n=30000", true)
			c.advance(2 * time.Second)
			c.window(1, 100_000)
		})
	}
	add("write timeout of the server", func(c *client) {
		c.greet(initial(10))
		c.request(1, "GET", "/large?n=30000", true)
		c.request(3, "GET", "/hello", true)
		c.advance(2 * writeTimeout)
		c.window(1, 100_000)
	})
	add("read deadline", func(c *client) {
		c.greet()
		c.request(1, "POST", "/readdeadline", false)
		c.advance(2 * time.Second)
		c.data(1, true, []byte("late"))
	})
	for _, handler := range []string{"/wait", "/read", "/hello", "/echo"} {
		add("body as large as that of a stream for "+handler, func(c *client) {
			c.greet()
			c.window(0, 1<<20)
			c.request(1, "POST", handler, false)
			c.settle()
			sendBody(c, 1, streamWindow)
			c.release()
		})
	}
	for _, extra := range []int{1, 1000} {
		add(fmt.Sprintf("body %d larger than that of a stream", extra), func(c *client) {
			c.greet()
			c.request(1, "POST", "/wait", false)
			c.settle()
			sendBody(c, 1, streamWindow)
			c.data(1, false, make([]byte, extra))
			c.settle()
			c.release()
		})
	}
	add("padding counts", func(c *client) {
		c.greet()
		c.request(1, "POST", "/wait", false)
		c.settle()
		for range 256 { // 1 + 255 bytes each
			c.requireNoError(c.framer.WriteDataPadded(1, false, nil, make([]byte, 255)))
		}
		c.settle()
		c.release()
	})
	return scripts
}

// sendBody sends a body of n bytes, and its end.
func sendBody(c *client, id uint32, n int) {
	for p := pattern(n, 0); len(p) > 0; {
		part := p[:min(len(p), 16<<10)]
		p = p[len(part):]
		c.data(id, len(p) == 0, part)
	}
	c.settle()
}
