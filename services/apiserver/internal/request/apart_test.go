package request_test

import (
	"context"
	"testing"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// TestWorkApart has no part in what its request waits with, and does not end with it.
func TestWorkApart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	op := &requestinfo.Info{Verb: "get"}
	ctx = request.WithStartup(requestinfo.Carry(ctx, op))
	apart := request.Apart(ctx)
	request.SetWeigh(ctx, func(int) bool { t.Error("it waits for the request's turn"); return false })
	request.SetRest(ctx, func(bool) (func() error, bool) { t.Error("it gives back the request's seats"); return nil, false })
	request.SetAside(ctx, func() func() { t.Error("it gives back the request's turn"); return func() {} })
	request.SetBegun(ctx, func() { t.Error("it ends the request's work") })
	request.SetRecord(ctx, "record")
	request.SetUser(ctx, &request.User{Name: "somebody"})
	cancel()
	if !request.Weigh(apart, request.LargeBody) || apart.Err() != nil || request.UserFrom(apart) != nil || request.RecordFrom(apart) != nil {
		t.Errorf("%v, %v", apart.Err(), request.UserFrom(apart))
	}
	request.Rest(apart, true)
	request.Aside(apart)()
	request.Begun(apart)
	if requestinfo.From(apart) != op || !request.Startup(apart) {
		t.Error("it does not know what it is for")
	}
}
