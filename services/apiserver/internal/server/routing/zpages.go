package routing

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"runtime"
	"strings"
	"time"
)

// Flagz serves the names and values of flags as text, in the order of lines.
func Flagz(component string, lines [][2]string) http.Handler {
	return servePlainText(func(w io.Writer) {
		fmt.Fprintf(w, pageHeader+"\n", component, "flags")
		for _, line := range lines {
			fmt.Fprintf(w, "%s=%s\n", line[0], line[1])
		}
	})
}

// Versions holds the versions that Statusz reports.
type Versions struct{ Binary, Emulation string }

// Statusz serves the start time, uptime and versions of a component as text.
func Statusz(component string, started time.Time, versions Versions) http.Handler {
	return servePlainText(func(w io.Writer) {
		uptime := int64(time.Since(started).Seconds())
		fmt.Fprintf(w, pageHeader, component, "statusz")
		fmt.Fprintf(w, "\nStarted: %s\nUp: %d hr %02d min %02d sec\nGo version: %s\nBinary version: %s\nEmulation version: %s\n",
			started.Format(time.UnixDate), uptime/3600, uptime/60%60, uptime%60, runtime.Version(), versions.Binary, versions.Emulation)
	})
}

const pageHeader = `
%s %s
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.
`

// servePlainText returns a handler that serves the text of write to clients that accept text/plain.
// Other clients get 406.
func servePlainText(write func(io.Writer)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !acceptsPlainText(r.Header.Get("Accept")) {
			http.Error(w, "media type not acceptable, must be: text/plain", http.StatusNotAcceptable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		write(w)
	})
}

// acceptsPlainText reports whether an Accept header has text/plain in UTF-8, or a wildcard for it.
func acceptsPlainText(header string) bool {
	for media := range strings.SplitSeq(header, ",") {
		name, params, err := mime.ParseMediaType(media)
		if err != nil {
			continue
		}
		delete(params, "q")
		if len(params) > 1 || len(params) == 1 && !strings.EqualFold(params["charset"], "utf-8") {
			continue
		}
		switch name {
		case "text/plain", "text/*", "*/*", "*/plain":
			return true
		}
	}
	return false
}
