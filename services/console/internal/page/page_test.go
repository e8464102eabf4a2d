package page

import (
	"context"
	"encoding/json"
	"io/fs"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/reviews"
	"binnacle/libs/serving"
	"binnacle/services/console/internal/scrape"
	"binnacle/services/console/internal/view"
)

// fakeScraper counts the scrapes of a suite with one replica.
type fakeScraper struct {
	Page      *Page
	handler   http.Handler
	scrapes   atomic.Int64
	rejection *reviews.Rejection
}

func newFakeScraper(t *testing.T) *fakeScraper {
	t.Helper()
	scraper := &fakeScraper{}
	scraper.Page = New(Config{
		Check: func(*http.Request) *reviews.Rejection { return scraper.rejection },
		Scrape: func(context.Context) (map[scrape.Replica]*scrape.Sample, []scrape.MissingTarget) {
			scraper.scrapes.Add(1)
			return map[scrape.Replica]*scrape.Sample{{Service: "apiserver", Address: "a:1"}: {Time: time.Now(), Ready: true}}, nil
		},
		Interval: 2 * time.Second, IdleInterval: 15 * time.Second,
	})
	engine, err := serving.NewEngine(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	scraper.Page.Mount(engine)
	scraper.handler = engine
	return scraper
}

func (s *fakeScraper) get(path string) *httptest.ResponseRecorder {
	response := httptest.NewRecorder()
	s.handler.ServeHTTP(response, httptest.NewRequest(http.MethodGet, path, nil))
	return response
}

// TestAssetsArePublicAndStateIsNot checks that the public assets are served with security headers, and that the
// state is not public.
func TestAssetsArePublicAndStateIsNot(t *testing.T) {
	scraper := newFakeScraper(t)
	scraper.rejection = &reviews.Rejection{
		Code:    http.StatusUnauthorized,
		Reason:  metav1.StatusReasonUnauthorized,
		Message: "not signed in",
	}
	for path, media := range map[string]string{"/": "text/html", "/console.js": "text/javascript", "/console.css": "text/css"} {
		response := scraper.get(path)
		if response.Code != http.StatusOK || !strings.HasPrefix(response.Header().Get("Content-Type"), media) || response.Body.Len() < 200 {
			t.Errorf("%s: got status %d, headers %v, %d bytes, want %d, type %s, at least 200 bytes", path, response.Code,
				response.Header(), response.Body.Len(), http.StatusOK, media)
		}
		checkSecurityHeaders(t, path, response.Header())
	}
	response := scraper.get("/state")
	var status metav1.Status
	if err := json.Unmarshal(response.Body.Bytes(), &status); err != nil || response.Code != 401 || status.Message != "not signed in" ||
		response.Header().Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("got status %d, %v: %s, want 401, not signed in, with a challenge for Bearer", response.Code, err, response.Body)
	}
	checkSecurityHeaders(t, "/state", response.Header())
	for _, path := range []string{"/assets/index.html", "/index.html", "/../page.go", "/state/"} {
		if response := scraper.get(path); response.Code != http.StatusNotFound {
			t.Errorf("%s: got %d, want %d", path, response.Code, http.StatusNotFound)
		}
	}
}

func checkSecurityHeaders(t *testing.T, path string, header http.Header) {
	t.Helper()
	policy := header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none';") || strings.Contains(policy, "unsafe") ||
		strings.Contains(policy, "http") || header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%s: got headers %v, want a policy without unsafe sources and nosniff", path, header)
	}
}

// TestAssetsContainNoInlineScriptsOrMarkup checks that the content security policy rejects inline content and other
// origins. Texts of replicas must not become markup.
func TestAssetsContainNoInlineScriptsOrMarkup(t *testing.T) {
	err := fs.WalkDir(assets, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := assets.ReadFile(path)
		for _, forbidden := range []string{`https?://`,
			`innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function`, `\son[a-z]+=`, `<script>`,
			`<style>`, `\sstyle=`, `localStorage|sessionStorage|document\.cookie`} {
			if found := regexp.MustCompile(forbidden).Find(data); found != nil {
				t.Errorf("%s: got %q, want no match of %q", path, found, forbidden)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestStateIsUnavailableBeforeFirstScrape checks that /state returns 503 before the first scrape, and then JSON without null
// lists.
func TestStateIsUnavailableBeforeFirstScrape(t *testing.T) {
	scraper := newFakeScraper(t)
	if response := scraper.get("/state"); response.Code != http.StatusServiceUnavailable {
		t.Errorf("before the first scrape: got %d, want %d", response.Code, http.StatusServiceUnavailable)
	}
	scraper.Page.history.Add(time.Now(),
		map[scrape.Replica]*scrape.Sample{{Service: "apiserver", Address: "a:1"}: {Time: time.Now(), Ready: true}}, nil)
	response := scraper.get("/state")
	var state view.State
	if err := json.Unmarshal(response.Body.Bytes(), &state); err != nil || response.Code != 200 || len(state.Replicas) != 1 ||
		!state.Replicas[0].Ready || response.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("got status %d, %v: %s, want 200 with one ready replica, no-store", response.Code, err, response.Body)
	}
	for _, list := range []string{`"requests":[]`, `"certificates":[]`, `"refusals":[]`, `"etcd":[]`,
		`"resources":[]`, `"clients":[]`, `"series":[{`} { // never null
		if !strings.Contains(response.Body.String(), list) {
			t.Errorf("got %s, want the list %s in it", response.Body, list)
		}
	}
}

// TestScrapesAreFrequentWhileViewed checks that the interval is short while clients view the page,
// and long otherwise.
func TestScrapesAreFrequentWhileViewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scraper := newFakeScraper(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- scraper.Page.Run(ctx) }()
		scrapesWithin := func(period time.Duration) int64 {
			before := scraper.scrapes.Load()
			time.Sleep(period)
			synctest.Wait()
			return scraper.scrapes.Load() - before
		}
		synctest.Wait()
		if scrapes := scraper.scrapes.Load(); scrapes != 1 {
			t.Errorf("at the start: got %d scrapes, want 1", scrapes)
		}
		if scrapes := scrapesWithin(time.Minute); scrapes != 4 {
			t.Errorf("in a minute without clients: got %d scrapes, want 4", scrapes)
		}
		scrapes := int64(0)
		for range 60 { // two clients that poll about every two seconds
			scraper.get("/state")
			scrapes += scrapesWithin(500 * time.Millisecond)
			scraper.get("/state")
			scrapes += scrapesWithin(500 * time.Millisecond)
		}
		if scrapes < 29 || scrapes > 31 {
			t.Errorf("in a minute with clients: got %d scrapes, want 29 to 31", scrapes)
		}
		scrapesWithin(time.Minute) // until the page counts as unused
		if scrapes := scrapesWithin(time.Minute); scrapes != 4 {
			t.Errorf("in a later minute without clients: got %d scrapes, want 4", scrapes)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestColorsHaveEnoughContrast checks the contrast of texts and charts in both color schemes. The
// limits are those of WCAG 2.1 AA.
func TestColorsHaveEnoughContrast(t *testing.T) {
	css, err := assets.ReadFile("assets/console.css")
	if err != nil {
		t.Fatal(err)
	}
	light, dark, ok := strings.Cut(string(css), "@media (prefers-color-scheme: dark)")
	if !ok {
		t.Fatal("console.css has no rules for prefers-color-scheme: dark, want some")
	}
	variable := regexp.MustCompile(`--([a-z]+): #([0-9a-f]{6});`)
	for name, scheme := range map[string]string{"light": light, "dark": dark} {
		colors := map[string]string{}
		for _, match := range variable.FindAllStringSubmatch(scheme, -1) {
			colors[match[1]] = match[2]
		}
		for _, text := range []string{"text", "soft", "good", "bad", "warn"} {
			if ratio := contrast(t, colors[text], colors["back"]); ratio < 4.5 {
				t.Errorf("%s: got a contrast of %s of %.2f, want at least 4.5", name, text, ratio)
			}
		}
		if ratio := contrast(t, colors["chart"], colors["back"]); ratio < 3 { // graphics
			t.Errorf("%s: got a contrast of charts of %.2f, want at least 3", name, ratio)
		}
	}
	if found := regexp.MustCompile(`[^-]color: #[0-9a-f]+`).FindAllString(string(css), -1); len(found) > 0 {
		t.Errorf("got colors without a variable: %q, want none", found)
	}
}

// TestTablesAreAccessible checks that table headers have a scope, that tables have names, and that wide
// tables can be scrolled with keys.
func TestTablesAreAccessible(t *testing.T) {
	html, err := assets.ReadFile("assets/index.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, tag := range regexp.MustCompile(`<th\b[^>]*>`).FindAllString(string(html), -1) {
		if !strings.Contains(tag, `scope="col"`) {
			t.Errorf("got %s, want scope=\"col\"", tag)
		}
	}
	for _, tag := range regexp.MustCompile(`<table[^>]*>`).FindAllString(string(html), -1) {
		if !strings.Contains(tag, "aria-labelledby=") {
			t.Errorf("got %s, want aria-labelledby", tag)
		}
	}
	for _, tag := range regexp.MustCompile(`<[a-z]+ class="wide"[^>]*>`).FindAllString(string(html), -1) {
		if !strings.Contains(tag, `tabindex="0"`) {
			t.Errorf("got %s, want tabindex=\"0\"", tag)
		}
	}
}

// contrast returns the contrast ratio of two colors as WCAG defines it.
func contrast(t *testing.T, colorA, colorB string) float64 {
	t.Helper()
	luminance := func(color string) (sum float64) {
		rgb, err := strconv.ParseUint(color, 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		for shift, weight := range map[int]float64{16: 0.2126, 8: 0.7152, 0: 0.0722} {
			channel := float64(rgb>>shift&0xff) / 255
			if channel <= 0.04045 {
				channel /= 12.92
			} else {
				channel = math.Pow((channel+0.055)/1.055, 2.4)
			}
			sum += weight * channel
		}
		return sum
	}
	luminanceA, luminanceB := luminance(colorA), luminance(colorB)
	return (max(luminanceA, luminanceB) + 0.05) / (min(luminanceA, luminanceB) + 0.05)
}
