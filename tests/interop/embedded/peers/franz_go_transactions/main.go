// Copies as many records as asked for from one topic to another with franz-go: in a group of the new protocol, and in
// transactions that commit the offsets as well.
package main

import (
	"context"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	count, _ := strconv.Atoi(os.Args[4])
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(os.Args[1]),
		kgo.ConsumeTopics(os.Args[2]),
		kgo.ConsumerGroup("g"),
		kgo.ServerSideBalancer(),
		kgo.TransactionalID("copy"),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	must(err)
	defer session.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	for count > 0 {
		records := session.PollFetches(ctx).Records()
		must(ctx.Err())
		must(session.Begin())
		for _, record := range records {
			must(session.ProduceSync(ctx, &kgo.Record{Topic: os.Args[3], Value: record.Value}).FirstErr())
		}
		committed, err := session.End(ctx, kgo.TryCommit)
		must(err)
		if committed {
			count -= len(records)
		}
	}
}
