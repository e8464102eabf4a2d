package pods

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
	"binnacle/services/apiserver/internal/rest/handlers"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/rest/streaming"
	"binnacle/services/apiserver/internal/status"
)

// kubeletURL returns a URL at the kubelet of a node.
func (p *service) kubeletURL(c *handlers.Call, node, path string, query url.Values) (*url.URL, error) {
	n, err := handlers.GetCurrent[*corev1.Node](c, corev1.SchemeGroupVersion.WithResource("nodes"), node)
	if apierrors.IsNotFound(err) {
		return nil, apierrors.NewNotFound(c.GroupResource(), node) // names the requested resource, as in Kubernetes
	}
	if err != nil {
		return nil, err
	}
	host, port, err := p.Upstream.Location(n)
	if err != nil {
		return nil, err
	}
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(host, port), Path: path, RawQuery: query.Encode()}, nil
}

// containerOf returns the container: the named one, or the only one.
func containerOf(p *corev1.Pod, name string) (string, error) {
	var names []string
	for i := range p.Spec.InitContainers {
		names = append(names, p.Spec.InitContainers[i].Name)
	}
	for i := range p.Spec.Containers {
		names = append(names, p.Spec.Containers[i].Name)
	}
	for i := range p.Spec.EphemeralContainers {
		names = append(names, p.Spec.EphemeralContainers[i].Name)
	}
	switch {
	case name != "" && slices.Contains(names, name):
		return name, nil
	case name != "":
		return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, p.Name))
	case len(p.Spec.Containers) == 1:
		return p.Spec.Containers[0].Name, nil
	case len(p.Spec.Containers) == 0:
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s", p.Name))
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %v",
		p.Name, names))
}

// logType names the type of a log in errors.
const logType = "*rest.LocationStreamer"

// serveLog serves GET of a pod's log.
func (p *service) serveLog(c *handlers.Call) error {
	types := append([]string{"text/plain"}, p.Media.Objects()...)
	if !negotiation.Names(c.R.Header.Get("Accept"), func(t string) bool { return slices.Contains(types, t) }) {
		return status.NoRepresentation(types)
	}
	if err := p.AcceptsView(c.R, false); err != nil {
		return err
	}
	o, err := p.logOptions(c)
	if err != nil {
		return err
	}
	pod, err := handlers.GetCurrent[*corev1.Pod](c, corev1.SchemeGroupVersion.WithResource("pods"), c.Info.Name)
	if err != nil {
		return err
	}
	container, err := containerOf(pod, o.Container)
	if err != nil {
		return err
	}
	if pod.Spec.NodeName == "" { // an unscheduled pod has no log
		if err := p.AcceptsStream(c.R, logType); err != nil {
			return err
		}
		responsewriters.SendWarnings(c.W, c.R)
		c.W.WriteHeader(http.StatusNoContent)
		return nil
	}
	logURL, err := p.kubeletURL(c, pod.Spec.NodeName, "/containerLogs/"+pod.Namespace+"/"+pod.Name+"/"+container, logQuery(o))
	if err != nil {
		return err
	}
	if err := p.AcceptsStream(c.R, logType); err != nil {
		return err
	}
	target := kubeletproxy.Kubelet
	if o.InsecureSkipTLSVerifyBackend {
		target = kubeletproxy.UnverifiedKubelet
	}
	log, err := p.Upstream.Log(c.Context(), target, logURL, pod.Name)
	if err != nil {
		return err
	}
	defer log.Close()
	if streaming.IsWebSocket(c.R) {
		streaming.SendOverWebSocket(c.W, c.R, log)
		return nil
	}
	c.W.Header().Set("Content-Type", "text/plain")
	responsewriters.SendWarnings(c.W, c.R)
	c.W.WriteHeader(http.StatusOK)
	out := io.Writer(c.W)
	if o.Follow {
		out = flushWriter{w: c.W, controller: http.NewResponseController(c.W)}
	}
	_, _ = io.Copy(out, log) // the response has started: an error can only cut it
	return nil
}

// flushWriter flushes a response after each write.
type flushWriter struct {
	w          io.Writer
	controller *http.ResponseController
}

// Write implements io.Writer.
func (f flushWriter) Write(b []byte) (int, error) {
	n, err := f.w.Write(b)
	if err == nil {
		err = f.controller.Flush()
	}
	return n, err
}

// checkAssigned returns an error if a pod is not assigned to a node.
func checkAssigned(pod *corev1.Pod) error {
	if pod.Spec.NodeName == "" {
		return apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", pod.Name))
	}
	return nil
}

// serveCommand serves exec and attach.
func (p *service) serveCommand(c *handlers.Call) error {
	o := execOptions(c.R.URL.Query())
	var options runtime.Object = o
	attach := &corev1.PodAttachOptions{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY, Container: o.Container}
	if c.Sub.Name == "attach" {
		options = attach
	}
	if err := c.Admit(c.ConnectRequest(options)); err != nil {
		return err
	}
	if options == attach { // admission may have changed the options
		o = &corev1.PodExecOptions{
			Stdin:     attach.Stdin,
			Stdout:    attach.Stdout,
			Stderr:    attach.Stderr,
			TTY:       attach.TTY,
			Container: attach.Container,
		}
	}
	pod, err := handlers.GetCurrent[*corev1.Pod](c, corev1.SchemeGroupVersion.WithResource("pods"), c.Info.Name)
	if err != nil {
		return err
	}
	container, err := containerOf(pod, o.Container)
	if err != nil {
		return err
	}
	if err := checkAssigned(pod); err != nil {
		return err
	}
	commandURL, err := p.kubeletURL(c, pod.Spec.NodeName, "/"+c.Sub.Name+"/"+pod.Namespace+"/"+pod.Name+"/"+container, execQuery(o))
	if err != nil {
		return err
	}
	streams := kubeletproxy.Streams{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY}
	p.Upstream.Command(c.W, c.R, commandURL, streams, p.TranslateCommands, errorResponder{c})
	return nil
}

// servePortForward proxies a port-forward request to the kubelet.
func (p *service) servePortForward(c *handlers.Call) error {
	o, err := portForwardOptions(c.R.URL.Query())
	if err != nil {
		return err
	}
	if err := c.Admit(c.ConnectRequest(o)); err != nil {
		return err
	}
	pod, err := handlers.GetCurrent[*corev1.Pod](c, corev1.SchemeGroupVersion.WithResource("pods"), c.Info.Name)
	if err == nil {
		err = checkAssigned(pod)
	}
	if err != nil {
		return err
	}
	query := url.Values{}
	var ports []string
	for _, p := range o.Ports {
		ports = append(ports, strconv.Itoa(int(p)))
	}
	if len(ports) > 0 {
		query.Set(corev1.PortHeader, strings.Join(ports, ","))
	}
	forwardURL, err := p.kubeletURL(c, pod.Spec.NodeName, "/portForward/"+pod.Namespace+"/"+pod.Name, query)
	if err != nil {
		return err
	}
	p.Upstream.PortForward(c.W, c.R, forwardURL, p.TunnelPortForward, errorResponder{c})
	return nil
}

// errorResponder writes the errors of a proxied request.
type errorResponder struct{ call *handlers.Call }

// Error implements kubeletproxy.Responder.
func (e errorResponder) Error(w http.ResponseWriter, r *http.Request, err error) {
	e.call.WriteError(w, r, err)
}
