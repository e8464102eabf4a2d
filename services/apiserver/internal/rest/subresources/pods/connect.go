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
func (s *service) kubeletURL(call *handlers.Call, node, path string, query url.Values) (*url.URL, error) {
	nodeObject, err := handlers.GetCurrent[*corev1.Node](call, corev1.SchemeGroupVersion.WithResource("nodes"), node)
	if apierrors.IsNotFound(err) {
		return nil, apierrors.NewNotFound(call.GroupResource(), node) // names the requested resource, as in Kubernetes
	}
	if err != nil {
		return nil, err
	}
	host, port, err := s.Upstream.Location(nodeObject)
	if err != nil {
		return nil, err
	}
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(host, port), Path: path, RawQuery: query.Encode()}, nil
}

// containerOf returns the name of the requested container. An empty name requests the only container
// of the pod.
func containerOf(pod *corev1.Pod, name string) (string, error) {
	var names []string
	for i := range pod.Spec.InitContainers {
		names = append(names, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Name)
	}
	switch {
	case name != "" && slices.Contains(names, name):
		return name, nil
	case name != "":
		return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
	case len(pod.Spec.Containers) == 1:
		return pod.Spec.Containers[0].Name, nil
	case len(pod.Spec.Containers) == 0:
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s", pod.Name))
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %v",
		pod.Name, names))
}

// logType names the type of a log in errors.
const logType = "*rest.LocationStreamer"

// serveLog serves GET of a pod's log.
func (s *service) serveLog(call *handlers.Call) error {
	types := append([]string{"text/plain"}, s.Media.Objects()...)
	if !negotiation.AcceptsAny(call.R.Header.Get("Accept"), func(t string) bool { return slices.Contains(types, t) }) {
		return status.NoRepresentation(types)
	}
	if err := s.AcceptsView(call.R, false); err != nil {
		return err
	}
	options, err := s.logOptions(call)
	if err != nil {
		return err
	}
	pod, err := handlers.GetCurrent[*corev1.Pod](call, corev1.SchemeGroupVersion.WithResource("pods"), call.Info.Name)
	if err != nil {
		return err
	}
	container, err := containerOf(pod, options.Container)
	if err != nil {
		return err
	}
	if pod.Spec.NodeName == "" { // an unscheduled pod has no log
		if err := s.AcceptsStream(call.R, logType); err != nil {
			return err
		}
		responsewriters.SendWarnings(call.W, call.R)
		call.W.WriteHeader(http.StatusNoContent)
		return nil
	}
	logURL, err := s.kubeletURL(call, pod.Spec.NodeName, "/containerLogs/"+pod.Namespace+"/"+pod.Name+"/"+container, logQuery(options))
	if err != nil {
		return err
	}
	if err := s.AcceptsStream(call.R, logType); err != nil {
		return err
	}
	target := kubeletproxy.Kubelet
	if options.InsecureSkipTLSVerifyBackend {
		target = kubeletproxy.UnverifiedKubelet
	}
	log, err := s.Upstream.Log(call.Context(), target, logURL, pod.Name)
	if err != nil {
		return err
	}
	defer log.Close()
	if streaming.IsWebSocket(call.R) {
		streaming.SendOverWebSocket(call.W, call.R, log)
		return nil
	}
	call.W.Header().Set("Content-Type", "text/plain")
	responsewriters.SendWarnings(call.W, call.R)
	call.W.WriteHeader(http.StatusOK)
	out := io.Writer(call.W)
	if options.Follow {
		out = flushWriter{response: call.W, controller: http.NewResponseController(call.W)}
	}
	_, _ = io.Copy(out, log) // the response has started: an error can only cut it
	return nil
}

// flushWriter flushes a response after each write.
type flushWriter struct {
	response   io.Writer
	controller *http.ResponseController
}

// Write implements io.Writer.
func (f flushWriter) Write(b []byte) (int, error) {
	n, err := f.response.Write(b)
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
func (s *service) serveCommand(call *handlers.Call) error {
	execution := execOptions(call.R.URL.Query())
	var options runtime.Object = execution
	attach := &corev1.PodAttachOptions{Stdin: execution.Stdin, Stdout: execution.Stdout, Stderr: execution.Stderr, TTY: execution.TTY, Container: execution.Container}
	if call.Sub.Name == "attach" {
		options = attach
	}
	if err := call.Admit(call.ConnectRequest(options)); err != nil {
		return err
	}
	if options == attach { // admission may have changed the options
		execution = &corev1.PodExecOptions{
			Stdin:     attach.Stdin,
			Stdout:    attach.Stdout,
			Stderr:    attach.Stderr,
			TTY:       attach.TTY,
			Container: attach.Container,
		}
	}
	pod, err := handlers.GetCurrent[*corev1.Pod](call, corev1.SchemeGroupVersion.WithResource("pods"), call.Info.Name)
	if err != nil {
		return err
	}
	container, err := containerOf(pod, execution.Container)
	if err != nil {
		return err
	}
	if err := checkAssigned(pod); err != nil {
		return err
	}
	commandURL, err := s.kubeletURL(call, pod.Spec.NodeName, "/"+call.Sub.Name+"/"+pod.Namespace+"/"+pod.Name+"/"+container, execQuery(execution))
	if err != nil {
		return err
	}
	streams := kubeletproxy.Streams{Stdin: execution.Stdin, Stdout: execution.Stdout, Stderr: execution.Stderr, TTY: execution.TTY}
	s.Upstream.Command(call.W, call.R, commandURL, streams, s.TranslateCommands, errorResponder{call})
	return nil
}

// servePortForward proxies a port-forward request to the kubelet.
func (s *service) servePortForward(call *handlers.Call) error {
	options, err := portForwardOptions(call.R.URL.Query())
	if err != nil {
		return err
	}
	if err := call.Admit(call.ConnectRequest(options)); err != nil {
		return err
	}
	pod, err := handlers.GetCurrent[*corev1.Pod](call, corev1.SchemeGroupVersion.WithResource("pods"), call.Info.Name)
	if err == nil {
		err = checkAssigned(pod)
	}
	if err != nil {
		return err
	}
	query := url.Values{}
	var ports []string
	for _, s := range options.Ports {
		ports = append(ports, strconv.Itoa(int(s)))
	}
	if len(ports) > 0 {
		query.Set(corev1.PortHeader, strings.Join(ports, ","))
	}
	forwardURL, err := s.kubeletURL(call, pod.Spec.NodeName, "/portForward/"+pod.Namespace+"/"+pod.Name, query)
	if err != nil {
		return err
	}
	s.Upstream.PortForward(call.W, call.R, forwardURL, s.TunnelPortForward, errorResponder{call})
	return nil
}

// errorResponder writes the errors of a proxied request.
type errorResponder struct{ call *handlers.Call }

// Error implements kubeletproxy.Responder.
func (e errorResponder) Error(w http.ResponseWriter, r *http.Request, err error) {
	e.call.WriteError(w, r, err)
}
