package request_test

import (
	"context"
	"testing"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// TestDetachedWorkIsIndependentOfRequest checks that detached work does not use the limits of its
// request and does not end with it.
func TestDetachedWorkIsIndependentOfRequest(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	info := &requestinfo.Info{Verb: "get"}
	ctx = requesttest.WithStartup(requesttest.WithInfo(ctx, info))
	detached := request.Detach(ctx)
	request.FromContext(ctx).Work = &requesttest.Work{
		OnEstimate:     func(int) bool { t.Error("it uses the permit of the request"); return false },
		OnReleaseSeats: func(bool) (func() error, bool) { t.Error("it released the request's seats"); return nil, false },
		OnSuspend:      func() func() { t.Error("it released the permit of the request"); return func() {} },
		OnStarted:      func() { t.Error("it started the request") },
	}
	request.FromContext(ctx).AuditEvent = "event"
	request.FromContext(ctx).User = &request.User{Name: "ada"}
	cancel()
	if request.Estimate(detached, request.LargeBody) != nil || detached.Err() != nil ||
		request.UserFrom(detached) != nil || request.FromContext(detached).AuditEvent != nil {
		t.Errorf("detached context: got error %v, user %v, audit event %v, want nil for all",
			detached.Err(), request.UserFrom(detached), request.FromContext(detached).AuditEvent)
	}
	request.WorkFrom(detached).ReleaseSeats(true)
	request.Suspend(detached)()
	request.Started(detached)
	if requestinfo.FromContext(detached) != info || !request.FromContext(detached).Startup {
		t.Errorf("detached context: got request info %v, startup mark %t, want %v, true",
			requestinfo.FromContext(detached), request.FromContext(detached).Startup, info)
	}
}
