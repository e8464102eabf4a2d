// Package page serves the console: a page with its script and style, which contain no data and are
// public, and /state, which requires authorization by Check.
//
// Run scrapes the suite repeatedly: often while /state is requested, rarely otherwise, so that
// recent rejections are available to the first visitor.
package page

import (
	"context"
	"embed"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/reviews"
	"binnacle/services/console/internal/scrape"
	"binnacle/services/console/internal/view"
)

//go:embed assets
var assets embed.FS

// activePeriod is how long after a request the page counts as in use.
const activePeriod = 30 * time.Second

// Config configures a Page.
type Config struct {
	// Check returns why a caller may not see the state, or nil.
	Check func(*http.Request) *reviews.Rejection
	// Scrape reads the samples of all replicas.
	Scrape func(context.Context) (map[scrape.Replica]*scrape.Sample, []scrape.MissingTarget)
	// Interval is the interval of scrapes while the page is in use, IdleInterval otherwise.
	Interval, IdleInterval time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Page serves the console.
type Page struct {
	config      Config
	history     *view.History
	lastRequest atomic.Int64  // time of the last request, in nanoseconds since 1970
	wake        chan struct{} // has capacity for one
}

// New returns a page.
func New(c Config) *Page {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Page{config: c, history: view.NewHistory(), wake: make(chan struct{}, 1)}
}

// servedFiles returns the served assets.
func servedFiles() map[string]struct{ name, media string } {
	return map[string]struct{ name, media string }{
		"/":            {"index.html", "text/html; charset=utf-8"},
		"/console.js":  {"console.js", "text/javascript; charset=utf-8"},
		"/console.css": {"console.css", "text/css; charset=utf-8"},
	}
}

// Mount adds the routes.
func (p *Page) Mount(engine *gin.Engine) {
	for path, file := range servedFiles() {
		engine.GET(path, func(c *gin.Context) {
			setSecurityHeaders(c.Writer.Header())
			data, err := assets.ReadFile("assets/" + file.name)
			if err != nil { // unreachable: the file is embedded
				c.Status(http.StatusNotFound)
				return
			}
			c.Header("Cache-Control", "no-cache")
			c.Data(http.StatusOK, file.media, data)
		})
	}
	engine.GET("/state", p.serveState)
}

// setSecurityHeaders sets headers that make browsers allow only what the page needs: its script,
// its style, and requests to this server.
func setSecurityHeaders(header http.Header) {
	header.Set("Content-Security-Policy",
		"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
}

// serveState writes the state of the suite as JSON to an authorized client.
func (p *Page) serveState(c *gin.Context) {
	setSecurityHeaders(c.Writer.Header())
	c.Header("Cache-Control", "no-store")
	if rejection := p.config.Check(c.Request); rejection != nil {
		if rejection.Code == http.StatusUnauthorized {
			c.Header("WWW-Authenticate", "Bearer")
		}
		reviews.Reject(c, *rejection)
		return
	}
	p.lastRequest.Store(p.config.Now().UnixNano())
	select {
	case p.wake <- struct{}{}:
	default: // a wake-up is pending
	}
	state, ok := p.history.State()
	if !ok {
		reviews.Reject(c, reviews.Rejection{
			Code:    http.StatusServiceUnavailable,
			Reason:  metav1.StatusReasonServiceUnavailable,
			Message: "no replica has been scraped yet",
		})
		return
	}
	c.JSON(http.StatusOK, state)
}

// Run scrapes the suite until ctx ends.
func (p *Page) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
			// The page is in use: scrape soon.
			if wait := p.config.Interval - p.config.Now().Sub(last); wait > 0 {
				timer.Reset(wait)
				continue
			}
		case <-timer.C:
		}
		samples, missing := p.config.Scrape(ctx)
		if ctx.Err() != nil {
			return nil
		}
		last = p.config.Now()
		p.history.Add(last, samples, missing)
		timer.Reset(p.scrapeInterval(last))
	}
}

// scrapeInterval returns the time until the next scrape.
func (p *Page) scrapeInterval(now time.Time) time.Duration {
	if now.Sub(time.Unix(0, p.lastRequest.Load())) < activePeriod {
		return p.config.Interval
	}
	return p.config.IdleInterval
}
