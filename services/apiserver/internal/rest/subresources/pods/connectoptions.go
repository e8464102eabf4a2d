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
func (s *service) logOptions(call *handlers.Call) (*corev1.PodLogOptions, error) {
	reader := &optionReader{query: call.R.URL.Query()}
	options := &corev1.PodLogOptions{
		Container:                    reader.query.Get("container"),
		Follow:                       reader.readFlag("follow"),
		Previous:                     reader.readFlag("previous"),
		Timestamps:                   reader.readFlag("timestamps"),
		SinceSeconds:                 reader.readNumber("sinceSeconds"),
		SinceTime:                    reader.readTime("sinceTime"),
		TailLines:                    reader.readNumber("tailLines"),
		LimitBytes:                   reader.readNumber("limitBytes"),
		InsecureSkipTLSVerifyBackend: reader.readFlag("insecureSkipTLSVerifyBackend"),
	}
	if stream := reader.query.Get("stream"); stream != "" {
		options.Stream = &stream
	} else if s.SplitLogStreams {
		all := corev1.LogStreamAll
		options.Stream = &all
	}
	if reader.err != nil {
		return nil, reader.err
	}
	if errs := validateLogOptions(options, s.SplitLogStreams); len(errs) > 0 {
		return nil, status.Invalid(schema.GroupKind{Kind: "PodLogOptions"}, call.Info.Name, errs)
	}
	return options, nil
}

// validateLogOptions validates the options of a log request. split allows a selected stream.
func validateLogOptions(options *corev1.PodLogOptions, split bool) (errs field.ErrorList) {
	pathOf := field.NewPath
	if n := options.TailLines; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(pathOf("tailLines"), *n, "must be greater than or equal to 0"))
	}
	if n := options.LimitBytes; n != nil && *n < 1 {
		errs = append(errs, field.Invalid(pathOf("limitBytes"), *n, "must be greater than 0"))
	}
	n := options.SinceSeconds
	switch {
	case n != nil && options.SinceTime != nil:
		errs = append(errs, field.Forbidden(pathOf(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
	case n != nil && *n < 1:
		errs = append(errs, field.Invalid(pathOf("sinceSeconds"), *n, "must be greater than 0"))
	}
	streams := []string{corev1.LogStreamAll, corev1.LogStreamStderr, corev1.LogStreamStdout}
	stream := options.Stream
	switch {
	case stream == nil:
	case !split:
		errs = append(errs, field.Forbidden(pathOf("stream"), "may not be specified"))
	case !slices.Contains(streams, *stream):
		errs = append(errs, field.NotSupported(pathOf("stream"), *stream, streams))
	case *stream != corev1.LogStreamAll && options.TailLines != nil:
		errs = append(errs, field.Forbidden(pathOf(""), "`tailLines` and specific `stream` are mutually exclusive for now"))
	}
	return errs
}

// logQuery returns the query for a log at a kubelet.
func logQuery(options *corev1.PodLogOptions) url.Values {
	values := url.Values{}
	for name, set := range map[string]bool{"follow": options.Follow, "previous": options.Previous, "timestamps": options.Timestamps} {
		if set {
			values.Set(name, "true")
		}
	}
	for name, n := range map[string]*int64{"sinceSeconds": options.SinceSeconds, "tailLines": options.TailLines, "limitBytes": options.LimitBytes} {
		if n != nil {
			values.Set(name, strconv.FormatInt(*n, 10))
		}
	}
	if options.SinceTime != nil {
		values.Set("sinceTime", options.SinceTime.UTC().Format("2006-01-02T15:04:05Z07:00"))
	}
	if options.Stream != nil {
		values.Set("stream", *options.Stream)
	}
	return values
}

// execOptions parses the options of an exec. The options of an attach are the same without a
// command.
func execOptions(query url.Values) *corev1.PodExecOptions {
	reader := &optionReader{query: query}
	return &corev1.PodExecOptions{
		Stdin:     reader.readFlag("stdin"),
		Stdout:    reader.readFlag("stdout"),
		Stderr:    reader.readFlag("stderr"),
		TTY:       reader.readFlag("tty"),
		Container: query.Get("container"),
		Command:   query["command"],
	}
}

// execQuery returns the query for a command at a kubelet.
func execQuery(options *corev1.PodExecOptions) url.Values {
	values := url.Values{}
	streams := map[string]bool{
		corev1.ExecStdinParam:  options.Stdin,
		corev1.ExecStdoutParam: options.Stdout,
		corev1.ExecStderrParam: options.Stderr,
		corev1.ExecTTYParam:    options.TTY,
	}
	for name, requested := range streams {
		if requested {
			values.Set(name, "1")
		}
	}
	for _, word := range options.Command {
		values.Add("command", word)
	}
	return values
}

// portForwardOptions parses the ports that WebSocket clients send in the query.
func portForwardOptions(query url.Values) (*corev1.PodPortForwardOptions, error) {
	options := &corev1.PodPortForwardOptions{}
	for _, text := range query["ports"] {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		options.Ports = append(options.Ports, int32(n))
	}
	return options, nil
}
