package zaplog_test

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"go.uber.org/zap"

	"binnacle/services/apiserver/internal/storage/etcd/zaplog"
)

func TestLevelsAndFields(t *testing.T) {
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
	log := zaplog.New(to, "well known")
	log.Debug("dropped")
	log.Info("dropped")
	log.Warn("this is well known", zap.Int("n", 1))
	log.Named("raft").Warn("slow", zap.Int("n", 1), zap.String("s", "x"))
	log.With(zap.String("member", "m")).Error("failed", zap.Error(errors.New("why")))
	want := "level=WARN msg=slow logger=raft n=1 s=x\nlevel=ERROR msg=failed member=m error=why\n"
	if out.String() != want {
		t.Errorf("got log\n%swant\n%s", out.String(), want)
	}
	zaplog.New(nil).Error("discarded")
}
