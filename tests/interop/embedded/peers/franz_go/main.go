// Reads a topic in a group of the classic protocol with franz-go: one value a line, as many as asked for; then commits.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	count, _ := strconv.Atoi(os.Args[3])
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]),
		kgo.ConsumeTopics(os.Args[2]),
		kgo.ConsumerGroup("g"),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(200*time.Millisecond),
		kgo.AutoCommitInterval(200*time.Millisecond),
		kgo.MetadataMinAge(100*time.Millisecond), // five seconds by default, in which nothing is read when a leader is gone
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		panic(err)
	}
	defer client.CloseAllowingRebalance()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	for count > 0 {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			panic(ctx.Err())
		}
		for _, failed := range fetches.Errors() { // told for information: the client tries again
			fmt.Fprintln(os.Stderr, failed.Err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Println(string(record.Value))
			count--
		})
	}
	if err := client.CommitUncommittedOffsets(ctx); err != nil {
		panic(err)
	}
}
