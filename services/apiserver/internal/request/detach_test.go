package request_test

import (
	"context"
	"testing"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// Detached work does not use the limits of its request and does not end with it.
func TestDetachedWorkIsIndependentOfRequest(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	op := &requestinfo.Info{Verb: "get"}
	ctx = request.WithStartup(requestinfo.Carry(ctx, op))
	detached := request.Detach(ctx)
	request.SetWeigh(ctx, func(int) bool { t.Error("it uses the permit of the request"); return false })
	request.SetReleaseSeats(ctx, func(bool) (func() error, bool) { t.Error("it released the request's seats"); return nil, false })
	request.SetAside(ctx, func() func() { t.Error("it released the permit of the request"); return func() {} })
	request.SetBegun(ctx, func() { t.Error("it called the request's Begun function") })
	request.SetRecord(ctx, "record")
	request.SetUser(ctx, &request.User{Name: "ada"})
	cancel()
	if !request.Weigh(detached, request.LargeBody) || detached.Err() != nil || request.UserFrom(detached) != nil || request.RecordFrom(detached) != nil {
		t.Errorf("got context error %v and user %v, want nil and nil", detached.Err(), request.UserFrom(detached))
	}
	request.ReleaseSeats(detached, true)
	request.Aside(detached)()
	request.Begun(detached)
	if requestinfo.From(detached) != op || !request.Startup(detached) {
		t.Error("request info or startup mark is missing")
	}
}
