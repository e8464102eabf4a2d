package kubeletproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/request"
)

var (
	podsLog         = schema.GroupResource{Resource: "pods/log"}
	podsPortForward = schema.GroupResource{Resource: "pods/portforward"}
)

// Log requests a log from a kubelet. An error response of the kubelet becomes an API error with the
// kubelet's message. The caller closes the log.
func (u *Upstream) Log(ctx context.Context, kind TargetKind, location *url.URL, pod string) (io.ReadCloser, error) {
	request.Started(ctx) // the rest is the kubelet's time
	if err := checkLocation(location); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, location.String(), nil)
	if err != nil {
		return nil, err
	}
	client := &http.Client{
		Transport:     u.traces.Transport(u.poolFor(kind)),
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("redirects forbidden") },
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= http.StatusOK && resp.StatusCode <= http.StatusPartialContent {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	return nil, kubeletError(resp, podsLog, pod)
}

// maxErrorBytes bounds how much of a kubelet's error response is read.
const maxErrorBytes = 50 << 10

// kubeletError returns the API error for a kubelet's error response.
func kubeletError(resp *http.Response, resource schema.GroupResource, name string) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
	switch {
	case err != nil:
		return apierrors.NewInternalError(err)
	case resp.StatusCode == http.StatusInternalServerError:
		return apierrors.NewInternalError(fmt.Errorf("%s", text))
	case resp.StatusCode == http.StatusBadRequest:
		return apierrors.NewBadRequest(string(text))
	}
	return apierrors.NewGenericServerResponse(resp.StatusCode, "", resource, name, string(text), 0, false)
}
