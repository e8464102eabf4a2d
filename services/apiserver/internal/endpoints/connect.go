package endpoints

import (
	"context"
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

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/represent"
	"binnacle/services/apiserver/internal/upstream"
)

// connection is the handler of a sub-resource that is carried on to a kubelet, a
// pod or a service; nil for a method that it does not take. They take and give any media type.
func (a *API) connection(c *call) handler {
	h, methods := a.proxy, []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	switch c.sub.Name {
	case "log":
		h, methods = a.podLog, methods[:1]
	case "attach", "exec":
		h, methods = a.command, []string{http.MethodGet, http.MethodPost}
	case "portforward":
		h, methods = a.portForward, []string{http.MethodGet, http.MethodPost}
	}
	if !slices.Contains(methods, c.op.Method) {
		return nil
	}
	return a.long(h)
}

// long ends a request when the server has to stop.
func (a *API) long(h handler) handler {
	return func(c *call) error {
		ctx, cancel := context.WithCancel(c.ctx())
		defer cancel()
		if a.Stopping != nil {
			defer context.AfterFunc(a.Stopping, cancel)()
		}
		c.r = c.r.WithContext(ctx)
		return h(c)
	}
}

// admitConnect asks the admission plugins.
func (a *API) admitConnect(c *call, options runtime.Object) error {
	ask := c.write(nil, nil, "", "").Admission(admission.Connect, options, nil)
	if err := a.Writes.Admission.Mutate(c.ctx(), ask); err != nil {
		return err
	}
	return a.Writes.Admission.Validate(c.ctx(), ask)
}

// newest reads an object of the core group as it is now.
func newest[T registry.Object](a *API, c *call, resource, name string) (obj T, err error) {
	if err := c.reach(-1); err != nil {
		return obj, err
	}
	oc := c.onObject(corev1.SchemeGroupVersion.WithResource(resource), name, a)
	e, ok := oc.Store.Get(oc.key())
	if !ok {
		return obj, apierrors.NewNotFound(oc.GroupResource(), name)
	}
	any, err := oc.Coder.DecodeStored(e.Stored(), e.Revision)
	if err != nil {
		return obj, err
	}
	if obj, ok = any.(T); !ok {
		return obj, fmt.Errorf("%s %q is a %T", resource, name, any)
	}
	return obj, nil
}

// kubeletURL is a place at the kubelet of a node.
func (a *API) kubeletURL(c *call, node, path string, query url.Values) (*url.URL, error) {
	n, err := newest[*corev1.Node](a, c, "nodes", node)
	if apierrors.IsNotFound(err) {
		return nil, apierrors.NewNotFound(c.GroupResource(), node) // names what was asked of, as in Kubernetes
	}
	if err != nil {
		return nil, err
	}
	host, port, err := a.Upstream.Location(n)
	if err != nil {
		return nil, err
	}
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(host, port), Path: path, RawQuery: query.Encode()}, nil
}

// containerOf chooses the container: the one that is named, or the only one.
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
	return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %v", p.Name, names))
}

// podLog answers GET of a pod's log.
func (a *API) podLog(c *call) error {
	o, err := a.logOptions(c)
	if err != nil {
		return err
	}
	pod, err := newest[*corev1.Pod](a, c, "pods", c.op.Name)
	if err != nil {
		return err
	}
	container, err := containerOf(pod, o.Container)
	if err != nil {
		return err
	}
	if pod.Spec.NodeName == "" { // it runs nowhere, so it has said nothing
		represent.SendWarnings(c.w, c.r)
		c.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	at, err := a.kubeletURL(c, pod.Spec.NodeName, "/containerLogs/"+pod.Namespace+"/"+pod.Name+"/"+container, logQuery(o))
	if err != nil {
		return err
	}
	to := upstream.Kubelet
	if o.InsecureSkipTLSVerifyBackend {
		to = upstream.UnverifiedKubelet
	}
	log, err := a.Upstream.Log(c.ctx(), to, at, pod.Name)
	if err != nil {
		return err
	}
	defer log.Close()
	c.w.Header().Set("Content-Type", "text/plain")
	represent.SendWarnings(c.w, c.r)
	c.w.WriteHeader(http.StatusOK)
	out := io.Writer(c.w)
	if o.Follow {
		out = flushing{c.w, http.NewResponseController(c.w)}
	}
	_, _ = io.Copy(out, log) // the answer has begun: there is nobody to tell
	return nil
}

// flushing sends each write at once.
type flushing struct {
	w io.Writer
	c *http.ResponseController
}

func (f flushing) Write(b []byte) (int, error) {
	n, err := f.w.Write(b)
	if err == nil {
		err = f.c.Flush()
	}
	return n, err
}

// onNode refuses what only a pod that runs can answer.
func onNode(pod *corev1.Pod) error {
	if pod.Spec.NodeName == "" {
		return apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", pod.Name))
	}
	return nil
}

// command answers exec and attach.
func (a *API) command(c *call) error {
	o := execOptions(c.r.URL.Query())
	var options runtime.Object = o
	if c.sub.Name == "attach" {
		o.Command = nil
		options = &corev1.PodAttachOptions{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY, Container: o.Container}
	}
	if err := a.admitConnect(c, options); err != nil {
		return err
	}
	pod, err := newest[*corev1.Pod](a, c, "pods", c.op.Name)
	if err != nil {
		return err
	}
	container, err := containerOf(pod, o.Container)
	if err != nil {
		return err
	}
	if err := onNode(pod); err != nil {
		return err
	}
	at, err := a.kubeletURL(c, pod.Spec.NodeName, "/"+c.sub.Name+"/"+pod.Namespace+"/"+pod.Name+"/"+container, execQuery(o))
	if err != nil {
		return err
	}
	a.Upstream.Command(c.w, c.r, at, upstream.Streams{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY}, a.TranslateCommands, upstreamErrors{a})
	return nil
}

func (a *API) portForward(c *call) error {
	o, err := portForwardOptions(c.r.URL.Query())
	if err != nil {
		return err
	}
	if err := a.admitConnect(c, o); err != nil {
		return err
	}
	pod, err := newest[*corev1.Pod](a, c, "pods", c.op.Name)
	if err == nil {
		err = onNode(pod)
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
	at, err := a.kubeletURL(c, pod.Spec.NodeName, "/portForward/"+pod.Namespace+"/"+pod.Name, query)
	if err != nil {
		return err
	}
	a.Upstream.PortForward(c.w, c.r, at, a.TunnelPortForward, upstreamErrors{a})
	return nil
}

// upstreamErrors answers what fails on the way.
type upstreamErrors struct{ a *API }

// Error implements upstream.Responder.
func (u upstreamErrors) Error(w http.ResponseWriter, r *http.Request, err error) {
	u.a.fail(w, r, err)
}
