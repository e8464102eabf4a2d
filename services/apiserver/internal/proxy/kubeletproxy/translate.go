package kubeletproxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
	"k8s.io/apimachinery/pkg/util/httpstream/wsstream"
	constants "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"

	"binnacle/services/apiserver/internal/proxy/upgrade"
)

// pingPeriod is the interval of pings that keep connections to kubelets alive.
const pingPeriod = 5 * time.Second

// idleTimeout is the time after which a command without any input or output is canceled, and a
// request without a response, such as a followed log without lines. Kubelets have the same timeout.
const idleTimeout = 4 * time.Hour

// channelProtocol returns the channels of a command, by number.
func channelProtocol(s Streams) []wsstream.ChannelType {
	channel := func(requested bool, t wsstream.ChannelType) wsstream.ChannelType {
		if requested {
			return t
		}
		return wsstream.IgnoreChannel
	}
	return []wsstream.ChannelType{
		constants.StreamStdIn:  channel(s.Stdin, wsstream.ReadChannel),
		constants.StreamStdOut: channel(s.Stdout, wsstream.WriteChannel),
		constants.StreamStdErr: channel(s.Stderr, wsstream.WriteChannel),
		constants.StreamErr:    wsstream.WriteChannel,
		constants.StreamResize: wsstream.ReadChannel,
	}
}

// serveTranslated serves a command over WebSocket channels, and runs it on the kubelet over SPDY
// (KEP-4006). Errors are sent on the error channel, because the client's connection is upgraded
// before the kubelet's.
func (u *Upstream) serveTranslated(w http.ResponseWriter, r *http.Request, location *url.URL, s Streams) {
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{
		constants.StreamProtocolV5Name: {Binary: true, Channels: channelProtocol(s)},
	})
	conn.SetIdleTimeout(idleTimeout)
	_, streams, err := conn.Open(w, r)
	if err != nil {
		u.metrics.translated.WithLabelValues("400").Inc()
		return // Open has sent an error response
	}
	defer conn.Close()
	err = u.runCommand(r.Context(), location, s, streams)
	countStream(u.metrics.translated, err, http.StatusOK)
	_ = writeResult(streams[constants.StreamErr], err) // the client may have disconnected
}

// runCommand runs a command on the kubelet and returns its result.
func (u *Upstream) runCommand(ctx context.Context, location *url.URL, s Streams, streams []io.ReadWriteCloser) error {
	rt := &commandConn{upstream: u}
	executor, err := remotecommand.NewSPDYExecutorRejectRedirects(u.traces.Transport(rt), rt, http.MethodPost, location)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	streamOptions := remotecommand.StreamOptions{Tty: s.TTY}
	if s.Stdin {
		streamOptions.Stdin = streams[constants.StreamStdIn]
	}
	if s.Stdout {
		streamOptions.Stdout = streams[constants.StreamStdOut]
	}
	if s.Stderr {
		streamOptions.Stderr = streams[constants.StreamStdErr]
	}
	if s.TTY {
		sizes := make(chan remotecommand.TerminalSize)
		go readSizes(ctx, streams[constants.StreamResize], sizes)
		streamOptions.TerminalSizeQueue = sizeQueue{ctx, sizes}
	}
	return executor.StreamWithContext(ctx, streamOptions)
}

// commandConn opens the connection to the kubelet that runs a command. It is both the transport and
// the upgrader that client-go needs for that.
type commandConn struct {
	upstream *Upstream
	conn     *upgrade.Conn
}

// RoundTrip implements http.RoundTripper.
func (c *commandConn) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	r.Header.Set(httpstream.HeaderUpgrade, spdy.HeaderSpdy31)
	conn, err := upgrade.Dial(r, c.upstream.kubelet.Transport(), c.upstream.options.UpgradeTimeout)
	var d *upgrade.DialError
	if errors.As(err, &d) {
		return nil, d.Err // the error text must match that of other transports
	}
	if err != nil {
		return nil, err
	}
	c.conn = conn
	return conn.Response, nil
}

// commandProtocols are the protocols of commands. An empty name means the first version.
var commandProtocols = []string{
	"", constants.StreamProtocolV1Name, constants.StreamProtocolV2Name,
	constants.StreamProtocolV3Name, constants.StreamProtocolV4Name, constants.StreamProtocolV5Name,
}

// NewConnection implements spdy.Upgrader of client-go.
func (c *commandConn) NewConnection(resp *http.Response) (httpstream.Connection, error) {
	if c.conn.Upgraded() && strings.EqualFold(resp.Header.Get(httpstream.HeaderUpgrade), spdy.HeaderSpdy31) {
		if protocol := resp.Header.Get(httpstream.HeaderProtocolVersion); !slices.Contains(commandProtocols, protocol) {
			_ = c.conn.Close()
			return nil, fmt.Errorf("unable to upgrade connection: the kubelet selected the protocol %q, which was not requested", protocol)
		}
		c.conn.DropResponse()
		return spdy.NewClientConnectionWithPings(limitSPDY(c.conn), pingPeriod)
	}
	defer c.conn.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
	if err != nil {
		text = []byte("unable to read error from server response")
	}
	var status metav1.Status
	if json.Unmarshal(text, &status) == nil && status.Kind == "Status" {
		return nil, &apierrors.StatusError{ErrStatus: status}
	}
	return nil, fmt.Errorf("unable to upgrade connection: %s", strings.TrimSpace(string(text)))
}

// maxSizeText is the maximum size in bytes of the text of a terminal size. The decoder holds a
// whole text in memory.
const maxSizeText = 4 << 10

// readSizes sends the sizes of the client's terminal to the channel until the connection ends.
// After an invalid size, it discards all further input, so that the other channels continue.
func readSizes(ctx context.Context, from io.Reader, sizes chan<- remotecommand.TerminalSize) {
	text := &io.LimitedReader{R: from}
	d := json.NewDecoder(text)
	for {
		var size remotecommand.TerminalSize
		text.N = maxSizeText
		if err := d.Decode(&size); err != nil {
			_, _ = io.Copy(io.Discard, from)
			return
		}
		select {
		case sizes <- size:
		case <-ctx.Done():
			return
		}
	}
}

// sizeQueue returns terminal sizes until its context ends.
type sizeQueue struct {
	ctx   context.Context
	sizes <-chan remotecommand.TerminalSize
}

// Next implements remotecommand.TerminalSizeQueue.
func (q sizeQueue) Next() *remotecommand.TerminalSize {
	select {
	case size := <-q.sizes:
		return &size
	case <-q.ctx.Done():
		return nil
	}
}

// writeResult sends the result of a command to the client as a Status.
func writeResult(to io.Writer, err error) error {
	b, err := json.Marshal(commandStatus(err))
	if err == nil {
		_, err = to.Write(b)
	}
	return err
}

// commandStatus returns the Status for the result of a command, in the form that clients expect.
func commandStatus(err error) *metav1.Status {
	var exit utilexec.CodeExitError
	var api apierrors.APIStatus
	switch {
	case err == nil:
		return &metav1.Status{Status: metav1.StatusSuccess}
	case errors.As(err, &exit):
		return &metav1.Status{
			Status: metav1.StatusFailure,
			Reason: constants.NonZeroExitCodeReason,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{
				Type:    constants.ExitCodeCauseType,
				Message: strconv.Itoa(exit.ExitStatus()),
			}}},
			Message: fmt.Sprintf("command terminated with non-zero exit code: %v", err),
		}
	case errors.As(err, &api):
		st := api.Status()
		return &st
	default:
		return &apierrors.NewInternalError(err).ErrStatus
	}
}
