// Writes a transaction of N records with Sarama, reads them in a group and prints them: main BOOTSTRAP VERSION TOPIC N
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/IBM/sarama"
)

type printer struct {
	left int
	done context.CancelFunc
}

func (printer) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (printer) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (p *printer) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for p.left > 0 {
		select {
		case message := <-claim.Messages():
			fmt.Println(string(message.Value))
			session.MarkMessage(message, "")
			p.left--
		case <-session.Context().Done():
			return nil
		}
	}
	session.Commit()
	p.done()
	return nil
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	servers, topic := []string{os.Args[1]}, os.Args[3]
	count, err := strconv.Atoi(os.Args[4])
	must(err)
	config := sarama.NewConfig()
	config.Version, err = sarama.ParseKafkaVersion(os.Args[2])
	must(err)
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Producer.Transaction.ID = "sarama"
	config.Net.MaxOpenRequests = 1
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.IsolationLevel = sarama.ReadCommitted

	admin, err := sarama.NewClusterAdmin(servers, config)
	must(err)
	must(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
	producer, err := sarama.NewSyncProducer(servers, config)
	must(err)
	must(producer.BeginTxn())
	for number := range count {
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(strconv.Itoa(number))})
		must(err)
	}
	must(producer.CommitTxn())

	ctx, cancel := context.WithCancel(context.Background())
	group, err := sarama.NewConsumerGroup(servers, "sarama", config)
	must(err)
	reader := &printer{left: count, done: cancel}
	for ctx.Err() == nil {
		must(group.Consume(ctx, []string{topic}, reader))
	}
	must(group.Close())
}
