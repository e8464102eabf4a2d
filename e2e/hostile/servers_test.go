package hostile

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// startHostileServer is a TLS server of the attacker that handles connections itself.
func startHostileServer(t *testing.T, protocol string, serve func(*tls.Conn)) (url string, ca []byte) {
	t.Helper()
	certified := httptest.NewTLSServer(nil) // only for its certificate
	t.Cleanup(certified.Close)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: certified.TLS.Certificates,
		NextProtos:   []string{protocol},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn.(*tls.Conn))
			}()
		}
	}()
	return "https://" + listener.Addr().String(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certified.Certificate().Raw})
}

// respondWith returns a function that sends response to each HTTP/1.1 request.
func respondWith(response []byte) func(*tls.Conn) {
	return func(conn *tls.Conn) {
		r := bufio.NewReader(conn)
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				return
			}
			if _, err := conn.Write(response); err != nil {
				return
			}
		}
	}
}

// longResponseHead returns the head of a response with many short fields, of about size bytes.
func longResponseHead(size int) []byte {
	head := []byte("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n")
	for i := 0; len(head) < size; i++ {
		head = append(strconv.AppendInt(head, int64(i), 36), ":\r\n"...)
	}
	return append(head, "\r\n"...)
}

// floodPings sends HTTP/2 pings until the connection is closed. It allows one request per
// connection, so that there are many connections.
func floodPings(conn *tls.Conn) {
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	var frames strings.Builder
	framer := http2.NewFramer(&frames, nil)
	if framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1}) != nil {
		return
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	for {
		if _, err := io.WriteString(conn, frames.String()); err != nil {
			return
		}
		frames.Reset()
		for range 200 {
			_ = framer.WritePing(false, [8]byte{}) // writes to a strings.Builder do not fail
		}
	}
}

// TestServersOfTenantDoNotAffectOtherClients lets a webhook of the attacker respond with a head of
// many fields, with a response that never ends, and with pings. The test pins the limit of response
// heads.
func TestServersOfTenantDoNotAffectOtherClients(t *testing.T) {
	head := longResponseHead(10 << 20)
	unfinished := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n" +
		strings.Repeat(" ", 999_999)
	for _, test := range []struct {
		name, protocol string
		serve          func(*tls.Conn)
		attackers      int
	}{
		{name: "long response heads", protocol: "http/1.1", serve: respondWith(head), attackers: 100},
		{name: "unfinished responses", protocol: "http/1.1", serve: respondWith([]byte(unfinished)), attackers: 1000},
		{name: "pings", protocol: "h2", serve: floodPings, attackers: 30},
	} {
		t.Run(test.name, func(t *testing.T) {
			tenants := startTenants(t)
			url, data := startHostileServer(t, test.protocol, test.serve)
			tenants.mustCreate(t, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
				fmt.Sprintf(`{"metadata":{"name":"hostile"},"webhooks":[{"name":"hostile.ex.test",
				"admissionReviewVersions":["v1"],"sideEffects":"None","timeoutSeconds":10,"failurePolicy":"Ignore","namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"b"}},
				"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}],
				"clientConfig":{"url":%q,"caBundle":%q}}]}`, url, base64.StdEncoding.EncodeToString(data)))
			tenants.attackFor(t, tenants.attackTime(), func(ctx context.Context) {
				client := tenants.attackerClient()
				defer client.CloseIdleConnections()
				runAttackers(ctx, test.attackers, func(ctx context.Context, _ int) {
					req, err := http.NewRequest("POST", tenants.url+"/api/v1/namespaces/b/configmaps?dryRun=All",
						strings.NewReader(`{"metadata":{"name":"a"}}`))
					if err != nil {
						t.Error(err)
						return
					}
					req.Header.Set("Content-Type", jsonMedia)
					if resp, err := client.Do(req.WithContext(ctx)); err == nil {
						resp.Body.Close()
					}
					pauseAttacker(ctx)
				})
			})
		})
	}
}
