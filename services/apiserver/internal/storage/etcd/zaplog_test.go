package etcd_test

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"go.uber.org/zap"

	"binnacle/services/apiserver/internal/storage/etcd"
)

// TestZapLoggerWritesWarningsWithFields checks that warnings and errors are logged with their fields, and
// known and less important messages are dropped.
func TestZapLoggerWritesWarningsWithFields(t *testing.T) {
	var out bytes.Buffer
	to := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	log := etcd.ZapLogger(to, "well known")
	log.Debug("dropped")
	log.Info("dropped")
	log.Warn("this is well known", zap.Int("n", 1))
	log.Named("raft").Warn("slow", zap.Int("n", 1), zap.String("s", "x"))
	log.With(zap.String("member", "m")).Error("failed", zap.Error(errors.New("why")))
	want := "level=WARN msg=slow logger=raft n=1 s=x\nlevel=ERROR msg=failed member=m error=why\n"
	if out.String() != want {
		t.Errorf("got log\n%swant\n%s", out.String(), want)
	}
	etcd.ZapLogger(nil).Error("discarded")
}
