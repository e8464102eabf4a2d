package serving_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"binnacle/libs/serving"
)

// TestPanicGetsStatusOrClosesConnection checks the response and the log after a panic of a handler.
func TestPanicGetsStatusOrClosesConnection(t *testing.T) {
	type handle func(w http.ResponseWriter)
	tests := []struct {
		name   string
		handle handle
		status int  // 0: the connection is closed
		logged bool // with a stack
	}{
		{name: "no panic", handle: func(w http.ResponseWriter) { io.WriteString(w, "ok") }, status: 200, logged: false},
		{name: "panic", handle: func(http.ResponseWriter) { panic("boom") }, status: 500, logged: true},
		{name: "panic after the response began", handle: func(w http.ResponseWriter) {
			io.WriteString(w, "half")
			http.NewResponseController(w).Flush()
			panic("boom")
		}, status: 0, logged: true},
		{name: "abort", handle: func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, status: 0, logged: false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var logged strings.Builder
			log := slog.New(slog.NewTextHandler(&logged, nil))
			engine, err := serving.NewEngine(log)
			if err != nil {
				t.Fatal(err)
			}
			engine.GET("/x", func(c *gin.Context) { test.handle(c.Writer) })
			server := httptest.NewServer(engine)
			server.Config.ErrorLog = nil
			resp, err := server.Client().Get(server.URL + "/x")
			status := 0
			if err == nil {
				body, readErr := io.ReadAll(resp.Body)
				resp.Body.Close()
				if readErr == nil {
					status = resp.StatusCode
				}
				if status == 500 {
					checkStatus(t, resp, body)
				}
			}
			server.Close() // before the log is read
			if status != test.status {
				t.Errorf("status %d, %v; want %d", status, err, test.status)
			}
			if got := strings.Contains(logged.String(), "engine_test.go"); got != test.logged {
				t.Errorf("logged with a stack: %v, want %v\n%s", got, test.logged, logged.String())
			}
		})
	}
}

func checkStatus(t *testing.T, resp *http.Response, body []byte) {
	t.Helper()
	var got map[string]any
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if resp.Header.Get("Content-Type") != "application/json" || got["kind"] != "Status" || got["apiVersion"] != "v1" ||
		got["status"] != "Failure" || got["reason"] != "InternalError" || got["code"] != 500.0 || got["message"] == "" {
		t.Errorf("got headers %v: %s, want a Status with InternalError, 500, as JSON", resp.Header, body)
	}
}
