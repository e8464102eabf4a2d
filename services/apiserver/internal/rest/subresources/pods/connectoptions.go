package pods

import (
	"net/url"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/rest/handlers"
	"binnacle/services/apiserver/internal/status"
)

// optionReader parses options from a query and keeps the first error.
type optionReader struct {
	query url.Values
	err   error
}

// readFlag reports whether a parameter is set and not false.
func (o *optionReader) readFlag(name string) bool { return requestinfo.Truthy(o.query, name) }

// readNumber returns a number, or nil if it is absent or invalid.
func (o *optionReader) readNumber(name string) *int64 {
	text, specified := o.query[name]
	if !specified || len(text) == 0 || text[0] == "" {
		return nil
	}
	n, err := strconv.ParseInt(text[0], 10, 64)
	if err != nil {
		o.recordError(err)
		return nil
	}
	return &n
}

// readTime returns a time, or nil if it is absent.
func (o *optionReader) readTime(name string) *metav1.Time {
	text := o.query.Get(name)
	if text == "" {
		return nil
	}
	t := &metav1.Time{}
	if err := t.UnmarshalQueryParameter(text); err != nil {
		o.recordError(err)
	}
	return t
}

// recordError records an error unless there is one already.
func (o *optionReader) recordError(err error) {
	if o.err == nil {
		o.err = apierrors.NewBadRequest(err.Error())
	}
}

// logOptions parses and validates the options of a log.
func (p *service) logOptions(call *handlers.Call) (*corev1.PodLogOptions, error) {
	r := &optionReader{query: call.R.URL.Query()}
	podLogOptions := &corev1.PodLogOptions{
		Container:                    r.query.Get("container"),
		Follow:                       r.readFlag("follow"),
		Previous:                     r.readFlag("previous"),
		Timestamps:                   r.readFlag("timestamps"),
		SinceSeconds:                 r.readNumber("sinceSeconds"),
		SinceTime:                    r.readTime("sinceTime"),
		TailLines:                    r.readNumber("tailLines"),
		LimitBytes:                   r.readNumber("limitBytes"),
		InsecureSkipTLSVerifyBackend: r.readFlag("insecureSkipTLSVerifyBackend"),
	}
	if stream := r.query.Get("stream"); stream != "" {
		podLogOptions.Stream = &stream
	} else if p.SplitLogStreams {
		all := corev1.LogStreamAll
		podLogOptions.Stream = &all
	}
	if r.err != nil {
		return nil, r.err
	}
	if errs := validateLogOptions(podLogOptions, p.SplitLogStreams); len(errs) > 0 {
		return nil, status.Invalid(schema.GroupKind{Kind: "PodLogOptions"}, call.Info.Name, errs)
	}
	return podLogOptions, nil
}

// validateLogOptions validates the options of a log request. split allows a selected stream.
func validateLogOptions(podLogOptions *corev1.PodLogOptions, split bool) (errs field.ErrorList) {
	at := field.NewPath
	if n := podLogOptions.TailLines; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(at("tailLines"), *n, "must be greater than or equal to 0"))
	}
	if n := podLogOptions.LimitBytes; n != nil && *n < 1 {
		errs = append(errs, field.Invalid(at("limitBytes"), *n, "must be greater than 0"))
	}
	n := podLogOptions.SinceSeconds
	switch {
	case n != nil && podLogOptions.SinceTime != nil:
		errs = append(errs, field.Forbidden(at(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
	case n != nil && *n < 1:
		errs = append(errs, field.Invalid(at("sinceSeconds"), *n, "must be greater than 0"))
	}
	streams := []string{corev1.LogStreamAll, corev1.LogStreamStderr, corev1.LogStreamStdout}
	s := podLogOptions.Stream
	switch {
	case s == nil:
	case !split:
		errs = append(errs, field.Forbidden(at("stream"), "may not be specified"))
	case !slices.Contains(streams, *s):
		errs = append(errs, field.NotSupported(at("stream"), *s, streams))
	case *s != corev1.LogStreamAll && podLogOptions.TailLines != nil:
		errs = append(errs, field.Forbidden(at(""), "`tailLines` and specific `stream` are mutually exclusive for now"))
	}
	return errs
}

// logQuery returns the query for a log at a kubelet.
func logQuery(podLogOptions *corev1.PodLogOptions) url.Values {
	values := url.Values{}
	for name, set := range map[string]bool{"follow": podLogOptions.Follow, "previous": podLogOptions.Previous, "timestamps": podLogOptions.Timestamps} {
		if set {
			values.Set(name, "true")
		}
	}
	for name, n := range map[string]*int64{"sinceSeconds": podLogOptions.SinceSeconds, "tailLines": podLogOptions.TailLines, "limitBytes": podLogOptions.LimitBytes} {
		if n != nil {
			values.Set(name, strconv.FormatInt(*n, 10))
		}
	}
	if podLogOptions.SinceTime != nil {
		values.Set("sinceTime", podLogOptions.SinceTime.UTC().Format("2006-01-02T15:04:05Z07:00"))
	}
	if podLogOptions.Stream != nil {
		values.Set("stream", *podLogOptions.Stream)
	}
	return values
}

// execOptions parses the options of an exec. The options of an attach are the same without a
// command.
func execOptions(q url.Values) *corev1.PodExecOptions {
	r := &optionReader{query: q}
	return &corev1.PodExecOptions{
		Stdin:     r.readFlag("stdin"),
		Stdout:    r.readFlag("stdout"),
		Stderr:    r.readFlag("stderr"),
		TTY:       r.readFlag("tty"),
		Container: q.Get("container"),
		Command:   q["command"],
	}
}

// execQuery returns the query for a command at a kubelet.
func execQuery(podExecOptions *corev1.PodExecOptions) url.Values {
	values := url.Values{}
	streams := map[string]bool{
		corev1.ExecStdinParam:  podExecOptions.Stdin,
		corev1.ExecStdoutParam: podExecOptions.Stdout,
		corev1.ExecStderrParam: podExecOptions.Stderr,
		corev1.ExecTTYParam:    podExecOptions.TTY,
	}
	for name, requested := range streams {
		if requested {
			values.Set(name, "1")
		}
	}
	for _, word := range podExecOptions.Command {
		values.Add("command", word)
	}
	return values
}

// portForwardOptions parses the ports that WebSocket clients send in the query.
func portForwardOptions(q url.Values) (*corev1.PodPortForwardOptions, error) {
	o := &corev1.PodPortForwardOptions{}
	for _, text := range q["ports"] {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		o.Ports = append(o.Ports, int32(n))
	}
	return o, nil
}
