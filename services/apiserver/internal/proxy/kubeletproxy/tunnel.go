package kubeletproxy

import (
	"net"
	"net/http"
	"net/url"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
	constants "k8s.io/apimachinery/pkg/util/portforward"
	"k8s.io/client-go/tools/portforward"

	"binnacle/services/apiserver/internal/proxy/upgrade"
)

// serveTunnel forwards a port by SPDY. The client sends SPDY in WebSocket messages, the kubelet
// receives it unwrapped (KEP-4006). The kubelet is contacted first, so that the client gets an
// error as a regular response.
func (u *Upstream) serveTunnel(w http.ResponseWriter, r *http.Request, location *url.URL, errs Responder) {
	backend, err := u.dialSPDY(r, location)
	countStream(u.metrics.tunnelled, err, http.StatusSwitchingProtocols)
	if err != nil {
		errs.Error(w, r, err)
		return
	}
	defer backend.Close()
	upgrader := websocket.Upgrader{
		// Clients authenticate by certificate or token, never by cookie, so a page of another
		// origin gains nothing.
		CheckOrigin:  func(*http.Request) bool { return true },
		Subprotocols: []string{constants.WebsocketsSPDYTunnelingPortForwardV1},
		Error: func(w http.ResponseWriter, r *http.Request, _ int, reason error) {
			errs.Error(w, r, apierrors.NewBadRequest(reason.Error()))
		},
	}
	ws, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // the client has got a response
	}
	client := portforward.NewTunnelingConnection("client", ws)
	defer client.Close()
	if ws.Subprotocol() != constants.WebsocketsSPDYTunnelingPortForwardV1 {
		return
	}
	upgrade.Splice(client, backend)
}

// dialSPDY opens an upgraded connection to the kubelet.
func (u *Upstream) dialSPDY(r *http.Request, location *url.URL) (net.Conn, error) {
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, location.String(), nil)
	if err != nil {
		return nil, err
	}
	u.traces.Inject(r.Context(), req.Header)
	req.Header.Set(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	req.Header.Set(httpstream.HeaderUpgrade, spdy.HeaderSpdy31)
	req.Header.Set(httpstream.HeaderProtocolVersion, constants.PortForwardV1Name)
	conn, err := upgrade.Dial(req, u.kubelet.Transport(), u.options.UpgradeTimeout)
	if err != nil {
		return nil, err
	}
	if !conn.Upgraded() {
		err = kubeletError(conn.Response, podsPortForward, "")
		_ = conn.Close()
		return nil, err
	}
	conn.DropResponse()
	return conn, nil
}
