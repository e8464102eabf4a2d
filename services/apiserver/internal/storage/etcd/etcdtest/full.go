package etcdtest

import (
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"binnacle/services/apiserver/internal/storage/etcd/embedded"
)

// FillQuota makes a server that can be dialed reject all writes except deletions, like one that has
// reached its quota.
func FillQuota(t testing.TB, server *embedded.Server) {
	t.Helper()
	conn, err := grpc.NewClient(strings.TrimPrefix(server.Endpoint(), "http://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	request := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE}
	if _, err := pb.NewMaintenanceClient(conn).Alarm(t.Context(), request); err != nil {
		t.Fatal(err)
	}
}
